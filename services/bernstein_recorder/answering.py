"""How a session answers a call: from a live model, or from a recording."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Protocol

from bernstein_formats.canonical import JsonValue, parse_json, spelled
from bernstein_formats.errors import LimitExceeded, ReplayMissError
from bernstein_formats.llm_calls import Caller, CallRequest
from bernstein_formats.llm_miss import REMEDY, REMEDY_WITH_MODE, Miss
from bernstein_formats.llm_replay import Answer, Replay, UnusedCall
from bernstein_formats.modes import RuntimeMode
from bernstein_recorder.gate import Gate
from bernstein_recorder.recording import Recording, Summary
from bernstein_runtime import limits

UNUSED_LISTED_MAX = 1000

# Asks a live model.
Dial = Callable[[CallRequest], str]


class Source(Enum):
    """Where an answer came from."""

    RECORDED = 1
    LIVE = 2
    CACHED = 3


@dataclass(frozen=True, slots=True)
class Served:
    """An answer as JSON text, and how it came about."""

    response_json: bytes
    source: Source
    key: str
    warning: str = ""
    # With a mode: the call's fingerprint, and the mode that the answer is stored under.
    fingerprint: str = ""
    stored_mode: RuntimeMode | None = None

    def size(self) -> int:
        return len(self.response_json) + len(self.warning)

    def text(self) -> str:
        """The answer of a live model, which is always text."""
        text = parse_json(self.response_json)
        assert isinstance(text, str)
        return text


@dataclass(frozen=True, slots=True)
class Account:
    """What a session did, told at its end."""

    recording: Summary
    coverage_line: str = ""
    hit_count: int = 0
    miss_count: int = 0
    strict_violation_count: int = 0
    unused_calls: tuple[UnusedCall, ...] = ()
    unused_count: int = 0


class Marks(Protocol):
    """What a replay with a mode adds to one without; see `bernstein_recorder.moded`."""

    def seeded(self, call: CallRequest) -> CallRequest: ...

    def caller(self, call: CallRequest, caller: Caller, source: str) -> Caller: ...

    def checked(
        self, call: CallRequest, caller: Caller, found: Answer, served: Served
    ) -> Served: ...

    def lived(self, marked: Caller, served: Served) -> Served: ...

    def told(
        self, error: ReplayMissError, call: CallRequest, caller: Caller
    ) -> ReplayMissError: ...


class Answering(Protocol):
    """One kind of session."""

    def answer(self, call: CallRequest, caller: Caller) -> Served:
        """The answer; recorded durably before it is given, where the session records."""
        ...

    def account(self) -> Account:
        """What happened so far."""
        ...


class LiveAnswers:
    """Asks the provider, and records what it says if there is a recording."""

    def __init__(self, dial: Dial, recording: Recording | None, gate: Gate) -> None:
        self._dial = dial
        self._recording = recording
        self._gate = gate

    def answer(self, call: CallRequest, caller: Caller) -> Served:
        row = self._recording.answered(call, caller) if self._recording else None
        if row is not None:  # the answer got lost on its way, not the call
            return Served(answer_json(row["response"]), Source.LIVE, call.key())
        if self._recording is not None:
            self._recording.check_appendable()  # before a model is paid
        response = self._dial(call)
        if self._recording is not None:
            with self._gate.inside():
                self._recording.record(call, response, caller)
        return Served(answer_json(response), Source.LIVE, call.key())

    def account(self) -> Account:
        return Account(self._recording.summary() if self._recording else Summary())


class ReplayAnswers:
    """Answers from a recording; what it lacks is refused, or asked live where that is allowed."""

    def __init__(
        self,
        replay: Replay,
        replayed: Summary,
        folder: str,
        *,
        check: Callable[[Mapping[str, JsonValue], int], None],
        live: LiveAnswers,
        recording: Recording | None,
        gate: Gate,
        marks: Marks | None = None,
    ) -> None:
        """`folder` is the recorded run's, for people; `check` raises for a recorded call that this
        session may not read; `recording` takes what is served, if any."""
        self._check = check
        self._marks = marks
        self._replay = replay
        self._replayed = replayed
        self._folder = folder
        self._live = live
        self._recording = recording
        self._gate = gate
        self._lock = threading.Lock()

    def answer(self, call: CallRequest, caller: Caller) -> Served:
        if self._marks is not None:
            call = self._marks.seeded(call)
        with self._lock:
            found = self._replay.look_up(call, caller.lane)
        if isinstance(found, Miss):
            return self._missed(found, call, caller)
        self._check(found.row, found.line)
        response_json = answer_json(found.response, line=found.line)
        served = Served(response_json, Source.RECORDED, call.key())
        if self._marks is not None:
            served = self._marks.checked(call, caller, found, served)
        if self._recording is not None:
            with self._gate.inside():
                marked = self._marked(call, caller, "recording")
                self._recording.record(call, found.response, marked)
        return served

    def _marked(self, call: CallRequest, caller: Caller, source: str) -> Caller:
        return self._marks.caller(call, caller, source) if self._marks else caller

    def account(self) -> Account:
        with self._lock:
            replay = self._replay
            return Account(
                recording=self._replayed,
                coverage_line=replay.coverage_line(self._folder),
                hit_count=replay.hits,
                miss_count=replay.misses,
                strict_violation_count=replay.strict_violations,
                unused_calls=tuple(islice(replay.unused(), UNUSED_LISTED_MAX)),
                unused_count=replay.cached_count - replay.hits,
            )

    def _missed(self, miss: Miss, call: CallRequest, caller: Caller) -> Served:
        where = f"{self._folder}/llm_calls.jsonl"
        if self._replay.strict:
            error = miss.error(where, REMEDY if self._marks is None else REMEDY_WITH_MODE)
            error.message += self._discarded()
            raise error if self._marks is None else self._marks.told(error, call, caller)
        marked = self._marked(call, caller, "live")
        served = self._live.answer(call, marked)
        served = replace(served, warning=miss.text(where) + self._discarded())
        return served if self._marks is None else self._marks.lived(marked, served)

    def _discarded(self) -> str:
        """A lost line is often the reason of a miss."""
        lines = self._replay.discarded_lines()
        if not lines:
            return ""
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        return f" {len(lines)} of the recording's lines are not recorded calls: {shown}."


def answer_json(response: JsonValue, line: int = 0) -> bytes:
    """As JSON text in ASCII: half a surrogate pair stays the escape that it is in the file."""
    text = spelled(response).encode("ascii")
    if len(text) > limits.ANSWER_BYTES_MAX:
        raise LimitExceeded(
            f"the recorded answer on line {line} has {len(text)} bytes, more than"
            f" {limits.ANSWER_BYTES_MAX}, the most that one message takes",
            line=line,
            limit=limits.ANSWER_BYTES_MAX,
        )
    return text
