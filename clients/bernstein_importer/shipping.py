"""One file's way: what is stored already is compared, what follows is appended, in whole lines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import (
    BernsteinError,
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunExists,
    RunSealed,
)
from bernstein_importer.source import Look, SourceFile
from bernstein_runtime import limits

TAIL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """Where a file goes: how much of it is stored, and how more is appended at an offset.

    Appending what is there already must change nothing and raise HeadMoved when it differs.
    """

    size: Callable[[], int]
    append: Callable[[int, bytes], int]
    is_sealed: bool = False
    # Whether a line that is longer than a piece may go in several.
    takes_split_lines: bool = False


@dataclass(frozen=True, slots=True)
class Shipped:
    """How far a file has come: up to `offset`, with `rows` lines; `tail` is the end of that."""

    look: Look
    offset: int
    rows: int
    new_bytes: int
    tail: bytes
    torn_bytes: int


def ship(file: SourceFile, target: Target, run_id: str, before: Shipped | None) -> Shipped:
    """Bring the target up to the file's last whole line.

    `before` is what an earlier look at the same file came to; without it everything that is stored
    is compared byte for byte. Raises RunExists when it differs, ForeignWriter when the file was
    changed in what had been taken, and what the services raise.
    """
    end = file.whole_size()
    if before is not None and _goes_on(file, before, run_id):
        stored, rows = before.offset, before.rows
    else:
        stored = target.size()
        _check_not_shorter(file, end, stored, run_id)
        rows = _compare(file, target, stored, run_id)
    if end > stored and target.is_sealed:
        raise RunSealed(
            f"run {run_id} is finished and sealed here with {rows} rows, and {file.path} has more;"
            " import it elsewhere with --sdd-dir",
            run_id=run_id,
            path=file.path,
        )
    tail = file.read(max(0, stored - TAIL_BYTES), stored)
    offset = stored
    for data in _pieces(file, stored, end, rows, split=target.takes_split_lines):
        target.append(offset, data)
        offset += len(data)
        rows += data.count(b"\n")
        tail = (tail + data)[-TAIL_BYTES:]
    return Shipped(file.look, offset, rows, offset - stored, tail, file.look.size - offset)


def _goes_on(file: SourceFile, before: Shipped, run_id: str) -> bool:
    """Whether a file that was looked at has only grown; else all of it must be compared again."""
    if file.look == before.look:
        return True
    is_grown = file.look.size > before.look.size
    if not file.look.is_same_file(before.look) or not is_grown:
        return False
    start = before.offset - len(before.tail)
    if file.read(start, before.offset) == before.tail:
        return True
    raise ForeignWriter(
        f"{file.path} was rewritten before byte {before.offset}, in what had been taken;"
        f" run {run_id} here keeps what it was",
        run_id=run_id,
        path=file.path,
    )


def _check_not_shorter(file: SourceFile, end: int, stored: int, run_id: str) -> None:
    if end < stored:
        raise ForeignWriter(
            f"{file.path} has {end} bytes in whole lines, and {stored} are stored here of run"
            f" {run_id}: it was cut, or it is another run of the same id; what is here stays",
            run_id=run_id,
            path=file.path,
        )


def _compare(file: SourceFile, target: Target, stored: int, run_id: str) -> int:
    """Send what is stored once more: the other side compares. Gives the number of its lines."""
    rows = 0
    for start in range(0, stored, limits.PIECE_BYTES_MAX):
        data = file.read(start, min(stored, start + limits.PIECE_BYTES_MAX))
        try:
            target.append(start, data)
        except HeadMoved as error:
            raise RunExists(
                f"run {run_id} is here already with another content: {file.path} differs from it"
                f" between bytes {start} and {start + len(data)} (from line {rows + 1} on); it was"
                " rewritten, or two hosts used one id: import it elsewhere with --sdd-dir",
                run_id=run_id,
                path=file.path,
                line=rows + 1,
            ) from error
        rows += data.count(b"\n")
    return rows


def _pieces(file: SourceFile, start: int, end: int, rows: int, *, split: bool) -> Iterator[bytes]:
    """Pieces as large as a request may be; they end where lines do, as far as that can be."""
    while start < end:
        data = file.read(start, min(end, start + limits.PIECE_BYTES_MAX))
        cut = data.rfind(b"\n") + 1
        if cut == 0 and split and len(data) == limits.PIECE_BYTES_MAX:
            cut = len(data)
        if cut == 0:
            raise _too_long_or_cut(file, start, len(data), rows)
        yield data[:cut]
        start += cut
        rows += data.count(b"\n", 0, cut)


def _too_long_or_cut(file: SourceFile, start: int, length: int, rows: int) -> BernsteinError:
    if length < limits.PIECE_BYTES_MAX:
        return ForeignWriter(
            f"{file.path} was cut at byte {start + length} while it was read; try again",
            path=file.path,
        )
    return LimitExceeded(
        f"{file.path}, line {rows + 1} (byte {start}): a row of more than"
        f" {limits.PIECE_BYTES_MAX} bytes; the rows before it are taken",
        path=file.path,
        line=rows + 1,
    )
