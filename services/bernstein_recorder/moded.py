"""Sessions with a mode: every call gets its fingerprint, and answers cross modes one way only.

Rules: docs/formats/determinism.md, section 4.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bernstein_formats.cached_answers import changed_call, divergence
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    CacheModeError,
    InvalidInput,
    ReplayMissError,
    RowMalformed,
    SeedRequiredError,
)
from bernstein_formats.fingerprint import (
    Fingerprint,
    FingerprintInput,
    compute_fingerprint,
    shown_facts,
    temperature_bucket,
)
from bernstein_formats.llm_calls import Caller, CallRequest, literal_value
from bernstein_formats.llm_replay import Answer
from bernstein_formats.modes import RuntimeMode, may_replay, parse_mode
from bernstein_recorder.answering import Account, LiveAnswers, Served, Source, answer_json
from bernstein_recorder.gate import Gate
from bernstein_recorder.kept_answers import Kept, KeptAnswers
from bernstein_recorder.recording import Recording, Summary


@dataclass(frozen=True, slots=True)
class Scope:
    """What a session with a mode adds to each of its calls."""

    mode: RuntimeMode
    run_id: str
    version: str
    seed: int | None = None

    def seeded(self, call: CallRequest) -> CallRequest:
        """The call with the session's seed. Raises InvalidInput when it brings another one."""
        if self.seed is None:
            return call
        given = call.parameters.get("seed", self.seed)
        if given != self.seed:
            raise InvalidInput(
                f"the session's seed is {self.seed}, the call's {given!r}: leave it out of the"
                " parameters",
                field="parameters",
            )
        return replace(call, parameters={**call.parameters, "seed": self.seed})

    def key(self, call: CallRequest, caller: Caller) -> FingerprintInput:
        """What the call's fingerprint is made of. Raises InvalidInput, CanonicalizationError."""
        parameters = dict(call.parameters)
        system = parameters.pop("system", None)
        prompt: dict[str, JsonValue] = {"role": "user", "content": call.prompt}
        before = () if system is None else ({"role": "system", "content": system},)
        return FingerprintInput(
            family=str(caller.about.get("family") or call.provider),
            model=call.model,
            call_class=str(caller.about.get("call_class") or ""),
            runtime_mode=self.mode,
            messages=(*before, prompt),
            version=self.version,
            temperature_bucket=_bucket(call.temperature),
            seed=_whole(parameters.pop("seed", None), "seed"),
            max_tokens=_whole(literal_value(call.max_tokens, "max_tokens"), "max_tokens"),
            tools=_tools(parameters.pop("tools", None)),
            provider=call.provider,
            parameters=parameters,
        )


def check_session(mode: RuntimeMode | None, *, seed: int | None, allow_live_miss: bool) -> None:
    """Refuse what a mode does not have. Raises SeedRequiredError, CacheModeError."""
    if mode is None:
        return
    if mode.needs_seed and seed is None:
        raise SeedRequiredError(f"a session of {mode} pins its seed: give one", field="seed")
    if mode.is_hermetic and allow_live_miss:
        raise CacheModeError(
            f"{mode} never asks a model: leave allow_live_miss out, or replay as interactive",
            mode=mode,
        )


def check_direction(
    mode: RuntimeMode | None, run_id: str, row: Mapping[str, JsonValue], line: int
) -> None:
    """Refuse a recorded call of a mode that `mode` does not read. Raises CacheModeError,
    RowMalformed."""
    recorded = mode_of_row(row, line)
    if row and not may_replay(mode, recorded):
        raise CacheModeError(
            f"run {run_id}, line {line}: recorded {_told(recorded)}, which a session"
            f" {_told(mode)} does not read: answers flow interactive → headless-eval →"
            " headless-replay; replay the run as headless-replay",
            mode=mode,
            recorded_mode=recorded,
            line=line,
        )


class ModedAnswers:
    """Answers from what is kept, else from the provider; in headless-replay else not at all."""

    def __init__(
        self,
        scope: Scope,
        address: Callable[[CallRequest], str | None],
        kept: KeptAnswers,
        live: LiveAnswers,
        *,
        recording: Recording | None,
        gate: Gate,
    ) -> None:
        """`address` gives where a call's provider is; None: wherever it may be."""
        self._scope = scope
        self._address = address
        self._kept = kept
        self._live = live
        self._recording = recording
        self._gate = gate

    def answer(self, call: CallRequest, caller: Caller) -> Served:
        call = self._scope.seeded(call)
        key = self._scope.key(call, caller)
        made = compute_fingerprint(key)
        given = self._given_before(made, call, caller)
        if given is not None:
            return given
        address = self._address(call)
        found = self._kept.find(key, address)
        if found is not None:
            return self._from_kept(found, key, made, call, caller)
        if address is None or self._scope.mode.is_hermetic:
            raise divergence(key, made, address, self._kept.nearby(self._scope.mode))
        served = self._live.answer(call, replace(caller, about=_about(key, made, "live")))
        self._kept.keep(key, made, address, served.text(), self._scope.run_id)
        return replace(served, fingerprint=made.composite, stored_mode=self._scope.mode)

    def account(self) -> Account:
        return Account(self._recording.summary() if self._recording else Summary())

    def _given_before(self, made: Fingerprint, call: CallRequest, caller: Caller) -> Served | None:
        """The answer of this request id, when it got lost on its way."""
        row = self._recording.answered(call, caller) if self._recording else None
        if row is None:
            return None
        source = Source.CACHED if row.get("source") == "cache" else Source.LIVE
        stored = parse_mode(str(row.get("stored_mode") or self._scope.mode))
        text = answer_json(row["response"])
        return Served(text, source, call.key(), "", made.composite, stored)

    def _from_kept(
        self,
        found: Kept,
        key: FingerprintInput,
        made: Fingerprint,
        call: CallRequest,
        caller: Caller,
    ) -> Served:
        if self._recording is not None:
            about = _about(key, made, "cache") | {"stored_mode": found.mode.value}
            with self._gate.inside():
                self._recording.record(call, found.answer.response, replace(caller, about=about))
        response_json = answer_json(found.answer.response)
        return Served(response_json, Source.CACHED, call.key(), "", made.composite, found.mode)


class ReplayedMarks:
    """What a replay with a mode checks besides the call key."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def seeded(self, call: CallRequest) -> CallRequest:
        return self._scope.seeded(call)

    def caller(self, call: CallRequest, caller: Caller, source: str) -> Caller:
        """The caller with the members that a row of this session has."""
        key = self._scope.key(call, caller)
        return replace(caller, about=_about(key, compute_fingerprint(key), source))

    def checked(self, call: CallRequest, caller: Caller, found: Answer, served: Served) -> Served:
        """The answer with its fingerprint. Raises ReplayDivergenceError where the recorded one,
        in its own mode, is another."""
        key = self._scope.key(call, caller)
        made = compute_fingerprint(key)
        row_mode = mode_of_row(found.row, found.line)
        recorded = found.row.get("fingerprint")
        if recorded is not None and row_mode is not None:
            then = compute_fingerprint(replace(key, runtime_mode=row_mode))
            if then.composite != recorded:
                raise changed_call(key, then, found.row, found.line)
        return replace(served, fingerprint=made.composite, stored_mode=row_mode)

    def told(self, error: ReplayMissError, call: CallRequest, caller: Caller) -> ReplayMissError:
        """The miss with the fingerprint of what was asked for."""
        made = compute_fingerprint(self._scope.key(call, caller)).composite
        error.metadata.update(fingerprint=made, mode=self._scope.mode)
        error.message += f" Its fingerprint is {made}."
        return error


def mode_of_row(row: Mapping[str, JsonValue], line: int) -> RuntimeMode | None:
    """The mode that a recorded call was made in; None without a mark. Raises RowMalformed."""
    text = row.get("mode")
    if text is None:
        return None
    found = next((mode for mode in RuntimeMode if mode.value == text), None)
    if found is None:
        raise RowMalformed(
            f"line {line}: the recorded call's mode is none that there is; restore the recording"
            " from a copy",
            line=line,
        )
    return found


def _told(mode: RuntimeMode | None) -> str:
    return f"as {mode}" if mode else "without a mode"


def seed_of_row(row: Mapping[str, JsonValue]) -> int | None:
    """The seed that a recorded call was made with."""
    parameters = row.get("parameters")
    seed = parameters.get("seed") if isinstance(parameters, dict) else None
    return seed if type(seed) is int else None


def _about(key: FingerprintInput, made: Fingerprint, source: str) -> dict[str, JsonValue]:
    return {
        "mode": key.runtime_mode.value,
        "source": source,
        "fingerprint": made.composite,
        "facts": shown_facts(key),
    }


def _bucket(text: str) -> str | None:
    value = literal_value(text, "temperature")
    return None if value is None else temperature_bucket(value)


def _whole(value: JsonValue, name: str) -> int | None:
    if value is None or type(value) is int:
        return value
    raise InvalidInput(f"{name} is {value!r}: give a whole number or none", field=name)


def _tools(value: JsonValue) -> tuple[Mapping[str, JsonValue], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidInput("tools must be a list of objects", field="parameters")
    tools = [each for each in value if isinstance(each, dict)]
    if len(tools) != len(value):
        raise InvalidInput("tools must be a list of objects", field="parameters")
    return tuple(tools)
