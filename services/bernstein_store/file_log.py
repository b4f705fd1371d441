"""One append-only file with one writer, and what it acknowledged, kept beside it.

The marks file in our own state folder says up to which size the file is ours. A mark is written
before the bytes it speaks of, so it may be unfulfilled after a crash, never missing; once they are
durable it is confirmed, and only then is anybody answered. What a crash leaves beyond the last
fulfilled mark: whole lines stay (a caller may have been told of them, their mark lost with the
power), a torn one is moved aside to `<name>.torn-N`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replaced
from pathlib import Path

import structlog

from bernstein_formats.acknowledged import (
    WHAT_TO_DO,
    Acknowledged,
    MarkLine,
    acknowledged,
    read_marks,
)
from bernstein_formats.errors import ForeignWriter, RowsMissing, StoreFailed
from bernstein_runtime import metrics
from bernstein_runtime.disk import failed
from bernstein_runtime.regular_file import open_descriptor, open_regular, read_regular
from bernstein_store.durable import make_folder, replace, stop_for_good, sync_folder, write_all
from bernstein_store.store import Mark

REMEMBERED_SECONDS = 24 * 3600
MARKS_BYTES_MAX = 4 * 1024 * 1024
log = structlog.get_logger()


class FileLog:
    """See `bernstein_store.store.Log`."""

    def __init__(
        self,
        path: Path,
        marks_path: Path,
        *,
        private: bool = False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Open `path`, making it if need be. Raises RowsMissing when it is shorter than what was
        acknowledged. `changed` is called after each append."""
        # Told to everybody who comes after it was noticed.
        self._foreign_writer: ForeignWriter | None = None
        self._path = path
        self._changed = changed
        make_folder(path.parent)
        make_folder(marks_path.parent)
        is_new = not path.exists()
        try:
            self._marks = _MarksFile(marks_path)
            if is_new:
                self._check_size(0)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = open_descriptor(path, flags, 0o644)
            if private:
                path.parent.chmod(0o700)
                os.fchmod(self._file, 0o600)
            if is_new:
                sync_folder(path.parent)
            self._inode = os.fstat(self._file).st_ino
            self._size = self._settled(os.fstat(self._file).st_size)
        except OSError as error:
            raise failed(path, error) from error

    @property
    def size(self) -> int:
        return self._size

    @property
    def marks(self) -> Sequence[Mark]:
        return [mark for mark in self._marks.found if mark.request_id]

    def append(self, data: bytes, marks: Sequence[Mark]) -> None:
        with metrics.appending(data):
            self._append(data, marks)
        self._changed()

    def _append(self, data: bytes, marks: Sequence[Mark]) -> None:
        if self._foreign_writer is not None:
            raise self._foreign_writer
        if self._file < 0:
            raise StoreFailed(f"{self._path}: closed after a failure; see the log", path=self._path)
        self._check_ours()
        end = self._size + len(data)
        marks = marks or [Mark("", end, "")]
        try:
            self._marks.add(self._size, marks)
            write_all(self._file, data)
        except OSError as error:
            self._cut_back()
            raise failed(self._path, error) from error
        if os.fstat(self._file).st_size != end:
            raise self._foreign(os.fstat(self._file).st_size)
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self.close()
            stop_for_good(self._path, error)
        self._confirm(end, marks[-1].answer)
        self._size = end

    def catch_up(self) -> Sequence[Mark]:
        if self._foreign_writer is not None:
            raise self._foreign_writer
        return []  # no other process of ours appends to a file

    def set_aside(self, start: int) -> str:
        if start < self._marks.acknowledged:
            raise self._foreign(start)
        self._check_ours()
        try:
            aside = self._move_aside(start, self._size - start)
        except OSError as error:
            self.close()
            raise failed(self._path, error) from error
        self._marks.drop_beyond(start)
        self._size = start
        return str(aside)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._marks.close()

    def _check_ours(self) -> None:
        """The file under its name is still the one we opened, and nobody else wrote to it."""
        try:
            facts = self._path.stat(follow_symlinks=False)
            now = (facts.st_ino, facts.st_size)
        except FileNotFoundError:
            now = (0, 0)
        if now != (self._inode, self._size):
            raise self._foreign(now[1])

    def _foreign(self, size: int) -> ForeignWriter:
        self.close()
        self._foreign_writer = ForeignWriter(
            f"{self._path} was changed, replaced or removed by another program: "
            f"{self._size} bytes were acknowledged, {size} are there; "
            "stop that program and verify the run",
            path=self._path,
        )
        return self._foreign_writer

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
            os.fdatasync(self._file)
        except OSError as error:
            self.close()
            stop_for_good(self._path, error)

    def _confirm(self, end: int, answer: str) -> None:
        try:
            self._marks.add(end, [Mark("", end, answer)])
        except OSError as error:
            self._cut_back()
            raise failed(self._path, error) from error

    def _check_size(self, size: int) -> None:
        if size < self._marks.acknowledged:
            raise RowsMissing(
                f"{self._path} is shorter than it was: {self._marks.acknowledged} bytes were "
                f"acknowledged, {size} are there; {WHAT_TO_DO}",
                path=self._path,
            )

    def _settled(self, size: int) -> int:
        """Deal with what a crash left; gives the size to go on from."""
        self._check_size(size)
        if self._marks.is_new:
            return size  # another program's file, or a new one: its owner checks it line by line
        whole = self._marks.acknowledged + self._whole_lines(self._marks.acknowledged, size)
        if whole < size:
            self._move_aside(whole, size - whole)
        self._marks.drop_beyond(whole)
        return whole

    def _whole_lines(self, start: int, end: int) -> int:
        """Bytes of the complete lines between two offsets."""
        return os.pread(self._file, end - start, start).rfind(b"\n") + 1

    def _move_aside(self, start: int, length: int) -> Path:
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.torn-{number}")).exists():
            number += 1
        replace(aside, [os.pread(self._file, length, start)])
        os.ftruncate(self._file, start)
        os.fdatasync(self._file)
        log.warning("torn_tail_moved", path=str(aside), bytes=length)
        return aside


def acknowledged_in(marks_path: Path) -> Acknowledged:
    """What was acknowledged of a log that may be open; nothing is changed."""
    try:
        return acknowledged(read_marks(read_regular(marks_path)))
    except FileNotFoundError:
        return Acknowledged()
    except OSError as error:
        raise failed(marks_path, error) from error


def accept(path: Path, marks_path: Path) -> None:
    """Let the marks speak of what is there, whatever was acknowledged before."""
    try:
        _move_marks(marks_path, path.stat().st_size if path.exists() else 0)
    except OSError as error:
        raise failed(path, error) from error


def fulfilled_marks(path: Path, marks_path: Path) -> list[Mark]:
    """The marks whose bytes are there, read without opening the log and so without settling it."""
    if not marks_path.exists():
        return []
    try:
        marks = _MarksFile(marks_path)
        marks.close()
        with open_regular(path) as file:
            file.seek(marks.acknowledged)
            marks.drop_beyond(marks.acknowledged + file.read().rfind(b"\n") + 1)
    except OSError as error:
        raise failed(path, error) from error
    return [mark for mark in marks.found if mark.request_id]


def rewrite(path: Path, marks_path: Path, parts: Callable[[], Iterator[bytes]]) -> None:
    """Put other content into a log's file, and let its marks speak of that."""
    if marks_path.exists():
        # First the marks: a crash in between leaves whole lines beyond what they speak of.
        _move_marks(marks_path, sum(map(len, parts())))
    replace(path, parts())


def _move_marks(marks_path: Path, size: int) -> None:
    try:
        marks = _MarksFile(marks_path)
        marks.close()
        if marks.is_new:
            return  # another program's file
        kept = [replaced(mark, size=size) for mark in marks.found]
        now = int(time.time())  # noqa: TID251 - bookkeeping of our own, hashed nowhere
        lines = [_line(size, now, number, mark) for number, mark in enumerate(kept)]
        replace(marks_path, [*lines, _line(size, now, 0, Mark("", size, ""))])
    except OSError as error:
        raise failed(marks_path, error) from error


class _MarksFile:
    """Lines of `formats/bernstein_formats/acknowledged.py`: base is the log's size before the
    batch, number the append's place in it.

    Unsynced on purpose: a mark has to survive the process only. After a power cut the rows speak
    for themselves. A batch withdraws earlier marks beyond its base: their bytes never came.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        # Whether we never appended to this log.
        self.is_new = True
        self.found: list[Mark] = []
        self._known = Acknowledged()
        if path.exists():
            self._load(path)
            if path.stat().st_size > MARKS_BYTES_MAX:
                self._compact(path)
        self._file = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def acknowledged(self) -> int:
        """How many bytes were answered for certain."""
        return self._known.size

    def add(self, base: int, marks: Sequence[Mark]) -> None:
        """All or nothing. Raises OSError."""
        now = int(time.time())  # noqa: TID251 - bookkeeping of our own, hashed nowhere
        before = os.fstat(self._file).st_size
        try:
            lines = [_line(base, now, number, mark) for number, mark in enumerate(marks)]
            write_all(self._file, b"".join(lines))
        except OSError:
            os.ftruncate(self._file, before)
            raise

    def drop_beyond(self, size: int) -> None:
        """Forget marks whose bytes are not there."""
        while self.found and self.found[-1].size > size:
            self.found.pop()

    def close(self) -> None:
        os.close(self._file)

    def _load(self, path: Path) -> None:
        oldest = time.time() - REMEMBERED_SECONDS  # noqa: TID251 - likewise
        lines = read_marks(read_regular(path))
        self.is_new = not lines
        self._known = acknowledged(lines)
        for line in lines:
            if line.number == 0:
                self.drop_beyond(line.base)
            if line.written >= oldest and not line.is_confirmation:
                self.found.append(Mark(line.request_id, line.size, line.answer))

    def _compact(self, path: Path) -> None:
        now = int(time.time())  # noqa: TID251 - likewise
        known = self._known
        lines = [_line(known.size, now, number, mark) for number, mark in enumerate(self.found)]
        replace(path, [*lines, _line(known.size, now, 0, Mark("", known.size, known.answer))])


def _line(base: int, now: int, number: int, mark: Mark) -> bytes:
    return MarkLine(base, mark.size, now, number, mark.request_id, mark.answer).as_line()
