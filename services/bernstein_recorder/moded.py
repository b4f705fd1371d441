"""Sessions with a mode: every call gets its fingerprint, and answers cross modes one way only.

Rules: docs/formats/determinism.md, section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bernstein_formats.cached_answers import changed_call, divergence
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    CacheModeError,
    InvalidInput,
    ReplayMissError,
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
from bernstein_recorder.kept_answers import KeptAnswers
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


def check_direction(mode: RuntimeMode, recorded: RuntimeMode, run_id: str) -> None:
    """Refuse a replay against the direction of the modes. Raises CacheModeError."""
    if not may_replay(mode, recorded):
        raise CacheModeError(
            f"run {run_id} was recorded as {recorded}, which {mode} does not read: answers flow"
            " interactive → headless-eval → headless-replay; replay it as headless-replay",
            mode=mode,
            recorded_mode=recorded,
        )


class ModedAnswers:
    """Answers from what is kept, else from the provider; in headless-replay else not at all."""

    def __init__(
        self,
        scope: Scope,
        kept: KeptAnswers,
        live: LiveAnswers,
        recording: Recording | None,
        gate: Gate,
    ) -> None:
        self._scope = scope
        self._kept = kept
        self._live = live
        self._recording = recording
        self._gate = gate

    def answer(self, call: CallRequest, caller: Caller) -> Served:
        call = self._scope.seeded(call)
        key = self._scope.key(call, caller)
        made = compute_fingerprint(key)
        served = self._given_before(made, call, caller) or self._from_kept(key, made, call, caller)
        if served is not None:
            return served
        if self._scope.mode.is_hermetic:
            raise divergence(key, made, self._kept.nearby(self._scope.mode))
        served = self._live.answer(call, replace(caller, about=_about(key, made, "live")))
        self._kept.keep(key, made, served.text(), self._scope.run_id)
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
        self, key: FingerprintInput, made: Fingerprint, call: CallRequest, caller: Caller
    ) -> Served | None:
        found = self._kept.find(key)
        if found is None:
            return None
        if self._recording is not None:
            about = _about(key, made, "cache") | {"stored_mode": found.mode.value}
            with self._gate.inside():
                self._recording.record(call, found.answer.response, replace(caller, about=about))
        response_json = answer_json(found.answer.response)
        return Served(response_json, Source.CACHED, call.key(), "", made.composite, found.mode)


class ReplayedMarks:
    """What a replay with a mode checks besides the call key."""

    def __init__(self, scope: Scope, recorded_run_id: str) -> None:
        self._scope = scope
        self._recorded_run_id = recorded_run_id

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
        row_mode = mode_of_row(found.row)
        check_direction(self._scope.mode, row_mode, self._recorded_run_id)
        recorded = found.row.get("fingerprint")
        if recorded is not None:
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


def mode_of_row(row: Mapping[str, JsonValue]) -> RuntimeMode:
    """The mode that a recorded call was made in; without a mark it flows as an interactive one."""
    text = row.get("mode")
    return RuntimeMode(text) if text in list(RuntimeMode) else RuntimeMode.INTERACTIVE


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
