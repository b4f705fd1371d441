"""Sessions with a mode: every call gets its fingerprint, and answers cross modes one way only.

Rules: docs/formats/determinism.md, section 4.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bernstein_formats.cached_answers import changed_call, divergence
from bernstein_formats.call_fingerprint import key_of_call, seeded
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    CacheModeError,
    ReplayMissError,
    RowMalformed,
    SeedRequiredError,
)
from bernstein_formats.fingerprint import (
    Fingerprint,
    FingerprintInput,
    compute_fingerprint,
    shown_facts,
)
from bernstein_formats.llm_calls import Caller, CallRequest
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
        return seeded(call, self.seed)

    def key(self, call: CallRequest, caller: Caller) -> FingerprintInput:
        """What the call's fingerprint is made of. Raises InvalidInput."""
        purpose = {name: str(caller.about.get(name) or "") for name in ("family", "call_class")}
        return key_of_call(call, self.mode, self.version, **purpose)

    def about(self, key: FingerprintInput, made: Fingerprint, source: str) -> dict[str, JsonValue]:
        """What the row of a call says besides the call."""
        marks: dict[str, JsonValue] = {
            "mode": key.runtime_mode.value,
            "source": source,
            "fingerprint": made.composite,
            "facts": shown_facts(key),
        }
        return marks if self.seed is None else {**marks, "session_seed": self.seed}


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
        served = self._live.answer(
            call, replace(caller, about=self._scope.about(key, made, "live"))
        )
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
            about = self._scope.about(key, made, "cache") | {"stored_mode": found.mode.value}
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
        return replace(caller, about=self._scope.about(key, compute_fingerprint(key), source))

    def checked(self, call: CallRequest, caller: Caller, found: Answer, served: Served) -> Served:
        """The answer with its fingerprint. Raises ReplayDivergenceError where the recorded one,
        in its own mode, is another."""
        key = self._scope.key(call, caller)
        made = compute_fingerprint(key)
        row_mode = mode_of_row(found.row, found.line)
        recorded = found.row.get("fingerprint")
        if row_mode is not None:
            if recorded is None:
                raise RowMalformed(
                    f"line {found.line}: the recorded call has a mode and no fingerprint; restore"
                    " the recording from a copy",
                    line=found.line,
                )
            then = compute_fingerprint(replace(key, runtime_mode=row_mode))
            if then.composite != recorded:
                raise changed_call(key, then, found.row, found.line)
        return replace(served, fingerprint=made.composite, stored_mode=row_mode)

    def lived(self, marked: Caller, served: Served) -> Served:
        """A live answer that the recording lacked, with the fingerprint that its row has."""
        fingerprint = str(marked.about["fingerprint"])
        return replace(served, fingerprint=fingerprint, stored_mode=self._scope.mode)

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


def seed_of_row(row: Mapping[str, JsonValue]) -> int | None:
    """The seed that the session of a recorded call pinned."""
    seed = row.get("session_seed")
    return seed if type(seed) is int else None


def _told(mode: RuntimeMode | None) -> str:
    return f"as {mode}" if mode else "without a mode"
