"""One run's `llm_calls.jsonl`, open for appending: durable before the answer, one sync a group."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    BernsteinError,
    CacheModeError,
    DiskFull,
    ForeignWriter,
    HeadMoved,
    RequestIdReused,
    RowMalformed,
    Unavailable,
)
from bernstein_formats.llm_calls import (
    Caller,
    CallRequest,
    call_line,
    parameters_digest,
    parse_call,
)
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.paths import llm_calls_path
from bernstein_runtime.clock import Clock
from bernstein_store.store import Log, Mark, Store


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, size and digest of recorded calls: what a journal row says of a recording."""

    call_count: int = 0
    size_bytes: int = 0
    sha256: bytes = hashlib.sha256().digest()


class Tally:
    """Adds up a recording while its bytes go by, and finds the calls that have a request id."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._calls = 0
        self._size = 0
        self._begun: list[bytes] = []
        self._begun_at = 0
        self.lines = 0
        # The modes of the calls; "" is that of a call without one.
        self.modes: set[str] = set()
        # Request id → where its row stands.
        self.rows: dict[str, tuple[int, int]] = {}

    def feed(self, data: bytes) -> None:
        """The next bytes of the file."""
        self._digest.update(data)
        start = 0
        while (end := data.find(b"\n", start) + 1) > 0:
            self._begun.append(data[start:end])
            self._end_line()
            start = end
        if start < len(data):
            self._begun.append(data[start:])
        self._size += len(data)

    @property
    def is_torn(self) -> bool:
        """Whether the last line lacks its end."""
        return bool(self._begun)

    def summary(self) -> Summary:
        """What was fed so far; an unfinished line counts when it holds a call."""
        rest = b"".join(self._begun)
        calls = self._calls + (_call_in(rest) is not None)
        return Summary(calls, self._size, self._digest.digest())

    def modes_with(self, data: bytes) -> set[str]:
        """The modes of all calls, if these bytes were the next."""
        lines = b"".join([*self._begun, data]).split(b"\n")
        return self.modes | {_mode_in(row) for line in lines if (row := _call_in(line))}

    def _end_line(self) -> None:
        line = b"".join(self._begun)
        self._begun.clear()
        self.lines += 1
        row = _call_in(line)
        if row is not None:
            self._calls += 1
            self.modes.add(_mode_in(row))
            request_id = row.get("request_id")
            if isinstance(request_id, str):
                self.rows[request_id] = (self._begun_at, len(line))
        self._begun_at += len(line)


# What calls may be of where they are stored; "" is no mode.
_STORING: Final = {"", *(mode.value for mode in RuntimeMode if not mode.is_hermetic)}


def _told(mode: str) -> str:
    return f"of {mode[:40]}" if mode else "without a mode"


def _mode_in(row: Mapping[str, JsonValue]) -> str:
    mode = row.get("mode")
    return "" if mode is None else str(mode)


def _call_in(line: bytes) -> dict[str, JsonValue] | None:
    try:
        return parse_call(line) if line else None
    except RowMalformed:
        return None


@dataclass(slots=True)
class _Waiting:
    data: bytes
    request_id: str
    # Where it has to go, when that is told; else behind whatever is there.
    start: int | None = None
    failure: BernsteinError | None = None
    done: bool = False


@dataclass(slots=True)
class _Queue:
    """What waits for the writer. Whoever gets `writing` writes everything that is here."""

    writing: threading.Lock = field(default_factory=threading.Lock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Waiting] = field(default_factory=list)

    def add(self, entry: _Waiting) -> None:
        with self.lock:
            self.waiting.append(entry)

    def take(self) -> list[_Waiting]:
        with self.lock:
            taken, self.waiting = self.waiting, []
        return taken


class Recording:
    """The one writer of a run's recorded calls. Thread-safe."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        """Open it, making the file if need be. Raises what `Store.open_log` raises."""
        self.run_id = run_id
        # After a failure other than a full disk nobody knows the file: open it anew.
        self.failure: BernsteinError | None = None
        # What calls are to be of, as text; "" is no mode, None not said yet.
        self._claimed: str | None = None
        self._store = store
        self._clock = clock
        self._name = llm_calls_path(run_id)
        self._log: Log = store.open_log(self._name)
        self._queue = _Queue()
        self._tally = Tally()
        self._feed(0)

    def check_appendable(self) -> None:
        """Refuse to go on after a failure, and behind a cut line: the next row would be glued to
        it and both be lost."""
        if self.failure is not None:
            raise type(self.failure)(self.failure.message, **self.failure.metadata)
        if self._tally.is_torn:
            line = self._tally.lines + 1
            raise RowMalformed(
                f"{self._name}: line {line} is cut off, so nothing can be recorded behind it:"
                " record into a new run, or keep a copy and take that line out",
                path=self._name,
                line=line,
            )

    def claim(self, mode: RuntimeMode | None) -> None:
        """Write calls of this mode from now on. Raises CacheModeError where it holds another's."""
        with self._queue.writing:
            self._catch_up()
            wanted = mode.value if mode else ""
            self._check_one_mode(self._tally.modes | {wanted})
            self._claimed = wanted

    def summary(self) -> Summary:
        """The recording as acknowledged."""
        with self._queue.writing:
            self._catch_up()
            return self._tally.summary()

    def answered(self, call: CallRequest, caller: Caller) -> dict[str, JsonValue] | None:
        """The row of this request id, when it was recorded before. Raises RequestIdReused."""
        with self._queue.writing:
            self._catch_up()
            place = self._tally.rows.get(caller.request_id)
        if place is None:
            return None
        offset, length = place
        row = parse_call(b"".join(self._store.read(self._name, offset, offset + length)))
        same = (
            row["key"] == call.key()
            and row.get("parameters_digest") == parameters_digest(call.parameters)
            and row.get("lane", "") == caller.lane
        )
        if not same:
            raise RequestIdReused(
                f"{self._name}: request id {caller.request_id} is recorded for another call;"
                " make a new one for each call",
                request_id=caller.request_id,
            )
        return row

    def record(self, call: CallRequest, response: JsonValue, caller: Caller) -> None:
        """Append the call; on stable storage when it returns. Raises DiskFull and the like."""
        self.check_appendable()
        line = call_line(call, response, ts=self._clock.now_seconds(), caller=caller)
        entry = _Waiting(line, caller.request_id)
        self._queue.add(entry)
        with self._queue.writing:
            if not entry.done:
                self._write(self._queue.take())
        if entry.failure is not None:
            raise entry.failure

    def append_verbatim(
        self, data: bytes, start_offset: int, prefix_sha256: bytes | None = None
    ) -> int:
        """Append stored bytes at `start_offset`; the same bytes again change nothing. Raises
        CacheModeError for calls of a mode that the recording is not of, and HeadMoved where what
        is stored before them is not what `prefix_sha256` says."""
        with self._queue.writing:
            self._write(self._queue.take())
            self._catch_up()
            size = self._log.size
            if prefix_sha256 is not None:
                self._check_prefix(start_offset, size, prefix_sha256)
            if start_offset != size or not data:
                self._check_is_there(data, start_offset, size)
                return size
            self._check_one_mode(self._tally.modes_with(data))
            entry = _Waiting(data, f"append-{start_offset}", start_offset)
            self._write([entry])
            if entry.failure is not None:
                raise entry.failure
            return self._log.size

    def close(self) -> None:
        """Let go of the file."""
        with self._queue.writing:
            self._log.close()

    def _check_one_mode(self, modes: set[str]) -> None:
        """Whoever writes, a recording holds calls of one mode that stores any."""
        held = modes if self._claimed is None else modes | {self._claimed}
        if len(held) > 1:
            both = " and calls ".join(map(_told, sorted(held)))
            raise CacheModeError(
                f"run {self.run_id} would hold calls {both}: record them into a run of their own",
                run_id=self.run_id,
            )
        if not held <= _STORING:
            raise CacheModeError(
                f"run {self.run_id}: calls {_told(*held)} are stored nowhere", run_id=self.run_id
            )

    def _check_is_there(self, data: bytes, start: int, size: int) -> None:
        end = start + len(data)
        inside = start >= 0 and end <= size
        if inside and b"".join(self._store.read(self._name, start, end)) == data:
            return
        raise self._moved(size, start)

    def _check_prefix(self, end: int, size: int, expected: bytes) -> None:
        digest = hashlib.sha256()
        if 0 <= end <= size:
            for chunk in self._store.read(self._name, 0, end):
                digest.update(chunk)
        if not 0 <= end <= size or digest.digest() != expected:
            raise self._moved(size, end)

    def _moved(self, size: int, start: int | None) -> HeadMoved:
        return HeadMoved(
            f"{self._name} has {size} bytes, not {start}; go on from there, or import into a run"
            " that holds nothing else",
            path=self._name,
            size_bytes=size,
        )

    def _write(self, entries: Sequence[_Waiting]) -> None:
        """One write, one sync, whatever waited. The caller holds `writing`."""
        if not entries:
            return
        try:
            self._append(entries)
        except BernsteinError as failure:
            # After these it is known, or can be looked up, what the file holds.
            if not isinstance(failure, DiskFull | Unavailable):
                self.failure = failure
            for entry in entries:
                entry.failure = failure
        for entry in entries:
            entry.done = True

    def _append(self, entries: Sequence[_Waiting]) -> None:
        """Append them, behind what other recorders have appended meanwhile, if they may."""
        try:
            self._log.append(b"".join(entry.data for entry in entries), self._marks(entries))
        except ForeignWriter:
            size = self._log.size
            self._catch_up()
            if self._log.size == size:
                raise
            self._check_one_mode(self._tally.modes)
            left = [entry for entry in entries if self._may_follow(entry)]
            if left:
                self._append(left)
        else:
            for entry in entries:
                self._tally.feed(entry.data)

    def _may_follow(self, entry: _Waiting) -> bool:
        """Whether an entry still goes behind what is there now; else it has failed."""
        if entry.start not in {None, self._log.size}:
            entry.failure = self._moved(self._log.size, entry.start)
        elif entry.request_id in self._tally.rows:
            entry.failure = Unavailable(
                f"{self._name}: another recorder has recorded the call {entry.request_id};"
                " ask again and get its answer"
            )
        return entry.failure is None

    def _catch_up(self) -> None:
        """Count what other recorders of this store appended. The caller holds `writing`."""
        size = self._log.size
        self._log.catch_up()
        self._feed(size)

    def _feed(self, start: int) -> None:
        for chunk in self._store.read(self._name, start, self._log.size):
            self._tally.feed(chunk)

    def _marks(self, entries: Sequence[_Waiting]) -> list[Mark]:
        size = self._log.size
        marks: list[Mark] = []
        for entry in entries:
            size += len(entry.data)
            marks.append(Mark(entry.request_id, size, ""))
        return marks
