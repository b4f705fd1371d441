"""Replaying recorded model calls: which recorded answer a request gets, and what is left over.

Per key the answers come in recorded order. A caller that names its lane gets the answers recorded
in that lane, then those recorded without one, and never another lane's: identical requests side by
side keep their own answers. One caller at a time; whoever shares a replay holds a lock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bernstein_formats.canonical import JsonValue, parse_loosely
from bernstein_formats.errors import (
    InvalidInput,
    RecordingChanged,
    ReplayRecordingMissingError,
    RowMalformed,
)
from bernstein_formats.llm_calls import CallRequest, parameters_digest, parse_call
from bernstein_formats.llm_index import CallIndex, Record, tag
from bernstein_formats.llm_miss import (
    Difference,
    Miss,
    MissKind,
    RecordedCall,
    explain_unknown,
    find_parameter_differences,
    recorded_call,
)

# Reads `length` bytes of the recording at `offset`.
ReadRow: TypeAlias = Callable[[int, int], bytes]

# A miss compares itself with so many recorded calls, around the last one served.
_COMPARED_CALLS: Final = 2000


@dataclass(slots=True)
class Answer:
    """A recorded response, its line, counted from 1, and its row (not frozen: made per look-up)."""

    response: JsonValue
    line: int
    row: dict[str, JsonValue] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UnusedCall:
    """A recorded call that nobody asked for."""

    line: int
    key: str
    model: str


class Replay:
    """The state of one replay over a recording and its index."""

    def __init__(self, index: CallIndex, read: ReadRow, *, strict: bool = True) -> None:
        self.strict = strict
        self.hits = 0
        self.misses = 0
        self.strict_violations = 0
        self._index = index
        self._read = read
        self._queues: dict[bytes, _Queue] = {}
        self._served = bytearray(index.record_count)
        self._last_served = 0

    @property
    def cached_count(self) -> int:
        """How many recorded answers there are, used or not."""
        return len(self._served)

    @property
    def complete(self) -> bool:
        """Whether every recorded call was asked for and every request answered."""
        return self.hits == self.cached_count and not self.misses and not self.strict_violations

    def look_up(self, request: CallRequest, lane: str = "") -> Answer | Miss:
        """Return the next answer for the request and use it up, or say why there is none."""
        digest = request.digest()
        record = self._take(digest, request, lane)
        if record is None:
            return self._miss(digest, request, lane)
        row = self._answering_row(record, digest.hex())
        number = record[0]
        self.hits += 1
        self._served[number] = 1
        self._last_served = number
        return Answer(row["response"], record.line, row)

    def _take(self, digest: bytes, request: CallRequest, lane: str) -> Record | None:
        """Use up the caller's next record of a key."""
        queue = self._queues.get(digest)
        if queue is None:
            records = self._index.find(digest)
            if len(records) == 1 and records[0].is_for_all:
                self._queues[digest] = _NONE_WAITING
                return records[0]
            queue = _Queue(records)
        parameters_tag = tag(parameters_digest(request.parameters)) if queue.has_digests else 0
        record = queue.take(tag(lane) if lane else 0, parameters_tag)
        self._queues[digest] = queue if queue.waiting else _NONE_WAITING
        return record

    def _answering_row(self, record: Record, key: str) -> dict[str, JsonValue]:
        """Read the row, which must still be the one that was indexed."""
        try:
            row = parse_loosely(self._read(record.offset, record.length))
            if type(row) is dict and row["key"] == key and type(row["response"]) is str:
                return row
        except (InvalidInput, KeyError):
            pass  # said in words below
        row = self._row(record)
        if row["key"] != key:
            raise _changed(record, "it has another key")
        return row

    def _row(self, record: Record) -> dict[str, JsonValue]:
        try:
            return parse_call(self._read(record.offset, record.length))
        except RowMalformed as error:
            raise _changed(record, error.message) from error

    def _call(self, record: Record) -> RecordedCall:
        return recorded_call(self._row(record), record.line)

    def _miss(self, digest: bytes, request: CallRequest, lane: str) -> Miss:
        if self.strict:
            self.strict_violations += 1
        else:
            self.misses += 1
        records = self._index.find(digest)
        if not records:
            around = self._calls_around_the_last_served()
            return explain_unknown(digest.hex(), request, lane, around)
        return self._explain_known(digest.hex(), request, lane, records)

    def _explain_known(
        self, key: str, request: CallRequest, lane: str, records: list[Record]
    ) -> Miss:
        """Explain a miss on a recorded key: used up, or recorded for another lane or otherwise."""
        in_lane = [each for each in records if _open_to(tag(lane), each.lane_tag)]
        wanted = tag(parameters_digest(request.parameters))
        fitting = [each for each in in_lane if _open_to(wanted, each.parameters_tag)]
        if fitting:
            nearest = self._call(fitting[0])
            return Miss(MissKind.USED_UP, key, request.model, len(fitting), nearest)
        record = next(
            (each for each in in_lane or records if not self._served[each.number]),
            (in_lane or records)[0],
        )
        nearest = self._call(record)
        differences = find_parameter_differences(request.parameters, nearest.parameters)
        if not in_lane:
            differences.insert(0, Difference("lane", repr(nearest.lane), repr(lane)))
        return Miss(MissKind.CHANGED, key, request.model, 0, nearest, tuple(differences))

    def _calls_around_the_last_served(self) -> Iterator[RecordedCall]:
        """Yield the calls nearest to where the replay stands, unused ones first."""
        around = _COMPARED_CALLS // 2
        start = max(0, self._last_served - around)
        numbers = range(start, min(self.cached_count, self._last_served + around))
        by_distance = sorted(
            numbers, key=lambda number: (self._served[number], abs(number - self._last_served))
        )
        return (self._call(self._index.record(number)) for number in by_distance)

    def unused(self) -> Iterator[UnusedCall]:
        """Yield the recorded calls that were never asked for, in recorded order."""
        number = self._served.find(0)
        while number >= 0:
            call = self._call(self._index.record(number))
            yield UnusedCall(call.line, call.key, call.model)
            number = self._served.find(0, number + 1)

    def discarded_lines(self) -> tuple[int, ...]:
        """Return the lines, counted from 1, that are neither blank nor a recorded call."""
        return self._index.discarded_lines()

    def coverage_line(self, run_dir: str) -> str:
        """Return the line that sums a replay up, exactly as the peer prints it."""
        return (
            f"replay-coverage run_dir={run_dir} cached={self.cached_count} hits={self.hits}"
            f" misses={self.misses} strict_violations={self.strict_violations}"
            f" strict={self.strict}"
        )


class _Queue:
    """The unused records of one key, in recorded order."""

    __slots__ = ("_has_lanes", "has_digests", "waiting")

    def __init__(self, records: list[Record]) -> None:
        self.waiting = records
        self._has_lanes = self.has_digests = False
        for record in records:
            self._has_lanes = self._has_lanes or record.lane_tag != 0
            self.has_digests = self.has_digests or record.parameters_tag != 0

    def take(self, lane_tag: int, parameters_tag: int) -> Record | None:
        """Use up the caller's next record; a caller without a lane takes from all of them."""
        if not self._has_lanes and not self.has_digests:
            return self.waiting.pop(0) if self.waiting else None
        if not lane_tag or not self._has_lanes:
            return self._take_first(None, parameters_tag)
        own = self._take_first(lane_tag, parameters_tag)
        return self._take_first(0, parameters_tag) if own is None else own

    def _take_first(self, lane_tag: int | None, parameters_tag: int) -> Record | None:
        for at, record in enumerate(self.waiting):
            if lane_tag in (None, record.lane_tag) and record.parameters_tag in (0, parameters_tag):
                return self.waiting.pop(at)
        return None


# One for all keys: most are asked for once, and what is kept slows the garbage collector down.
_NONE_WAITING: Final = _Queue([])


def _open_to(asked_tag: int, recorded_tag: int) -> bool:
    """Tell whether a record's lane or parameters let this caller in; 0 is open on either side."""
    return asked_tag in (0, recorded_tag) or recorded_tag == 0


def _changed(record: Record, what: str) -> RecordingChanged:
    return RecordingChanged(
        f"line {record.line} of the recording is not the call that was indexed ({what}):"
        " the file was changed; start the replay again",
        line=record.line,
    )


def check_has_calls(index: CallIndex, where: str) -> None:
    """Raise ReplayRecordingMissingError when a strict replay would have nothing to serve."""
    if index.record_count:
        return
    discarded = index.discarded_count
    what = f"none of its {discarded} lines is a recorded call" if discarded else "it has no call"
    raise ReplayRecordingMissingError(
        f"Deterministic replay requested but no recording exists at {where}: {what}."
        " Record the run with BERNSTEIN_DETERMINISTIC_SEED set, or set"
        " BERNSTEIN_REPLAY_ALLOW_LIVE_MISS=1 to call the live model.",
        path=where,
        discarded=discarded,
    )
