"""Streams of a run's rows while it is written: from any position, only what is stored, bounded."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput, LimitExceeded, TooManyStreams, Unavailable
from bernstein_formats.journal_reader import is_blank
from bernstein_formats.journal_repair import physical_lines
from bernstein_runtime import limits
from bernstein_runtime.metrics import OPEN_FOLLOWERS
from bernstein_store.store import Store

# What is sent at once, and the largest row that a message can carry.
ROWS_BYTES = 256 * 1024
ROW_BYTES_MAX = limits.MESSAGE_BYTES_MAX - 64 * 1024


@dataclass(frozen=True, slots=True)
class WatchedRows:
    """Rows that follow each other, as stored."""

    first_index: int
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class RowPart:
    """Of a row that is more than a message carries."""

    index: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """Everything before `next_index` was sent; a sealed run gets no further row."""

    next_index: int
    is_sealed: bool


class Watchers:
    """Safe for any number of threads; each `watch` is one of them."""

    def __init__(self, store: Store, room: threading.Semaphore) -> None:
        """`room`: for how many streams there are threads, shared by all origins."""
        self._store = store
        self._room = room
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, set[threading.Event]] = defaultdict(set)
        self._stopped = False
        # Also how soon a caller that left is noticed.
        self._poll_seconds = store.tell(self.wake)

    def wake(self, name: str) -> None:
        """A file was changed."""
        folder, _, _ = name.rpartition("/")
        run_id = folder.removeprefix(f"{paths.RUNS_FOLDER}/")
        with self._lock:
            for event in self._waiting.get(run_id, ()):
                event.set()

    def stop(self) -> None:
        """End every watch."""
        with self._lock:
            self._stopped = True
            for events in self._waiting.values():
                for event in events:
                    event.set()

    def watch(
        self,
        run_id: str,
        start_index: int,
        is_wanted: Callable[[], bool],
        *,
        takes_parts: bool = False,
    ) -> Iterator[WatchedRows | RowPart | WatchPlace]:
        """The rows from a position on, until the run is sealed or nobody wants more; those that are
        more than a message carries in parts, for whoever takes them.

        Raises InvalidInput for a position that no row has or will have next, TooManyStreams,
        LimitExceeded and, when the service stops, Unavailable.
        """
        with self._registered(run_id) as woken:
            rows = _Rows(self._store, run_id, takes_parts=takes_parts)
            rows.skip_to(start_index, self._store.stored_size(paths.journal_path(run_id)))
            yield WatchPlace(start_index, self._is_sealed(run_id))
            told = -1
            while is_wanted():
                woken.clear()
                is_sealed = self._is_sealed(run_id)
                yield from rows.read(self._store.stored_size(paths.journal_path(run_id)))
                if rows.next_index != told or is_sealed:
                    told = rows.next_index
                    yield WatchPlace(told, is_sealed)
                if is_sealed:
                    return
                if self._stopped:
                    raise Unavailable("the journal is stopping; ask again from the last row")
                woken.wait(self._poll_seconds)

    @contextmanager
    def _registered(self, run_id: str) -> Iterator[threading.Event]:
        woken = threading.Event()
        if not self._room.acquire(blocking=False):
            raise TooManyStreams(
                f"{limits.WATCHERS_MAX} streams are watched already; try again later"
            )
        with self._lock:
            OPEN_FOLLOWERS.add()
            self._waiting[run_id].add(woken)
        try:
            yield woken
        finally:
            self._room.release()
            with self._lock:
                OPEN_FOLLOWERS.add(-1)
                self._waiting[run_id].discard(woken)
                if not self._waiting[run_id]:
                    del self._waiting[run_id]

    def _is_sealed(self, run_id: str) -> bool:
        return self._store.size(paths.seal_path(run_id)) is not None


class _Rows:
    """Where one watch is in the file."""

    def __init__(self, store: Store, run_id: str, *, takes_parts: bool) -> None:
        self._store = store
        self._run_id = run_id
        self._takes_parts = takes_parts
        self._offset = 0
        self.next_index = 0

    def skip_to(self, start_index: int, size: int) -> None:
        if start_index:
            for line in self._whole_lines(size):
                self._pass(line)
                if self.next_index == start_index:
                    return
        if start_index != self.next_index:
            raise InvalidInput(
                f"run {self._run_id} has {self.next_index} rows;"
                f" it cannot be followed from row {start_index}",
                run_id=self._run_id,
                row_count=self.next_index,
            )

    def read(self, size: int) -> Iterator[WatchedRows | RowPart]:
        first, lines, total = self.next_index, list[bytes](), 0
        for line in self._whole_lines(size):
            if lines and total + len(line) > ROWS_BYTES:
                yield WatchedRows(first, lines)
                first, lines, total = self.next_index, [], 0
            if len(line) > ROW_BYTES_MAX and not is_blank(line):
                self._check(line)
                yield from _parts(self.next_index, line.rstrip(b"\r\n"))
                first = self.next_index + 1
            elif not is_blank(line):
                lines.append(line.rstrip(b"\r\n"))
                total += len(line)
            self._pass(line)
        if lines:
            yield WatchedRows(first, lines)

    def _whole_lines(self, size: int) -> Iterator[bytes]:
        """The lines that end before `size`. A CR at the very end may be half of a CRLF."""
        if size <= self._offset:
            return
        left = size - self._offset
        name = paths.journal_path(self._run_id)
        for line in physical_lines(self._store.read(name, self._offset, size)):
            left -= len(line)
            if not line.endswith(b"\n") and not (line.endswith(b"\r") and left):
                return
            yield line

    def _pass(self, line: bytes) -> None:
        self._offset += len(line)
        self.next_index += not is_blank(line)

    def _check(self, line: bytes) -> None:
        if not self._takes_parts:
            raise LimitExceeded(
                f"row {self.next_index} of run {self._run_id} has {len(line)} bytes, more than a"
                " stream carries; read it with `bernstein replay`",
                index=self.next_index,
            )


def _parts(index: int, row: bytes) -> Iterator[RowPart]:
    for start in range(0, len(row), ROWS_BYTES):
        end = start + ROWS_BYTES
        yield RowPart(index, row[start:end], end >= len(row))
