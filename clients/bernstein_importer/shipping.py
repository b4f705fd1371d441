"""One file's way: what is stored already is compared, what follows is appended, row by good row.

Nothing is remembered but in this process: how far the file has come is asked of the service, and
its digest says whether what is stored there is what the source holds.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from bernstein_formats.chain_growth import Growth
from bernstein_formats.errors import (
    BernsteinError,
    ChainBroken,
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunExists,
    RunSealed,
)
from bernstein_formats.journal_reader import LINE_BYTES_MAX
from bernstein_importer.source import BLOCK_BYTES, Look, SourceFile
from bernstein_runtime import limits

TAIL_BYTES: Final = 64


class Digest(Protocol):
    """A SHA-256 that goes on."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where a file goes: how much of it is stored, and how more is appended at an offset.

    Appending what is there already must change nothing and raise HeadMoved when it differs; so
    must, with a digest, appending behind other bytes than those.
    """

    # What it belongs to, in words: "run r1".
    owner: str
    size: Callable[[], int]
    append: Callable[[int, bytes, bytes | None], int]
    growth: Growth
    # Whether a line that is longer than a piece may go in several.
    takes_split_lines: bool = False


class Shipment:
    """How far one file has come. Not thread-safe; thrown away after an error, and begun anew."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._look: Look | None = None
        self._tail = b""
        # Of all that was shipped; at rest its value alone is kept.
        self._digest: Digest | None = hashlib.sha256()
        self._resting_digest = b""
        self.offset = 0
        self.rows = 0
        self.torn_bytes = 0

    def advance(self, file: SourceFile, *, is_sealed: bool = False) -> int:
        """Bring the target up to the file's last good row; gives the number of new bytes.

        Raises RunExists or ForeignWriter when the file is not what was shipped, ChainBroken behind
        the last row that links, RunSealed, and what the services raise.
        """
        if file.look == self._look:
            return 0
        end = file.whole_size()
        if self._look is None:
            stored = self._begun(file, end)
        else:
            stored = self.offset
            self._check_grown(file, self._look)
        new_bytes = self._ship(file, stored, end, is_sealed=is_sealed)
        self._look = file.look
        self.torn_bytes = file.look.size - self.offset
        return new_bytes

    def rest(self, file: SourceFile) -> None:
        """Compare all that was shipped once more, and keep no more than is needed to see a change.

        Raises ForeignWriter.
        """
        if self._digest is not None:
            self._compare_locally(file)
            self._resting_digest = self._digest.digest()
            self._digest, self._tail = None, b""

    def _check_grown(self, file: SourceFile, before: Look) -> None:
        """Refuse a file that was changed in what was shipped."""
        look = file.look
        is_grown = look.is_same_file(before) and look.size > before.size
        start = self.offset - len(self._tail)
        has_tail = self._digest is not None and file.read(start, self.offset) == self._tail
        if not (is_grown and has_tail):
            self._compare_locally(file)

    def _compare_locally(self, file: SourceFile) -> None:
        now = hashlib.sha256()
        for block in _blocks(file, 0, self.offset):
            now.update(block)
        known = self._digest.digest() if self._digest is not None else self._resting_digest
        if now.digest() != known:
            line = _first_other_line(file, self._target, self.offset)
            raise ForeignWriter(
                f"{file.path} was rewritten or cut in its first {self.offset} bytes, which had been"
                f" taken{line and f' (from line {line} on)'}; {self._target.owner} here keeps what"
                " it was, and takes no more rows until the file is put back",
                path=file.path,
                line=line or None,
            )
        self._digest = now

    def _begun(self, file: SourceFile, end: int) -> int:
        """How much is stored already, which is what the file begins with."""
        stored = self._target.size()
        if end < stored:
            raise ForeignWriter(
                f"{file.path} has {end} bytes in whole lines, and {stored} are stored here of"
                f" {self._target.owner}: it was cut, or it is another one of the same id; what is"
                " here stays",
                path=file.path,
            )
        assert self._digest is not None
        for block in _blocks(file, 0, stored):
            self._digest.update(block)
        if stored:
            self._compare(file, stored)
        return stored

    def _ship(self, file: SourceFile, stored: int, end: int, *, is_sealed: bool) -> int:
        """Walk the good rows up to `end`, and send those behind `stored`."""
        new_bytes = 0
        for unit in self._units(file, end):
            grown = self._target.growth.take(unit)
            there = min(max(stored - self.offset, 0), grown.size)
            data = unit[there : grown.size]
            if is_sealed and (data or grown.broken):
                raise self._sealed(file, self.offset + there)
            self._send(self.offset + there, data)
            new_bytes += len(data)
            self.offset += grown.size
            self.rows += grown.lines
            self._tail = (self._tail + unit[: grown.size][-TAIL_BYTES:])[-TAIL_BYTES:]
            if grown.broken is not None:
                raise self._named(file, grown.broken)
            if grown.size < len(unit):
                break
        if self.offset < stored:
            raise ForeignWriter(
                f"{file.path}: {stored} bytes are stored here of {self._target.owner}, and only the"
                f" first {self.offset} are rows that link; nothing follows them",
                path=file.path,
            )
        return new_bytes

    def _send(self, start: int, data: bytes) -> None:
        assert self._digest is not None
        for at in range(0, len(data), limits.PIECE_BYTES_MAX):
            piece = data[at : at + limits.PIECE_BYTES_MAX]
            self._target.append(start + at, piece, None)
            self._digest.update(piece)

    def _compare(self, file: SourceFile, stored: int) -> None:
        """Have the service compare what it stores. Raises RunExists when that is something else."""
        assert self._digest is not None
        try:
            self._target.append(stored, b"", self._digest.digest())
        except HeadMoved as error:
            line = _first_other_line(file, self._target, stored)
            raise RunExists(
                f"{self._target.owner} is here already with another content: {file.path} differs"
                f" from it{line and f' (from line {line} on)'}; it was rewritten, or two hosts used"
                " one id: import it elsewhere with --sdd-dir",
                path=file.path,
                line=line or None,
            ) from error

    def _units(self, file: SourceFile, end: int) -> Iterator[bytes]:
        """Whole lines from where we are: as many as a request takes, or one that is longer."""
        start, rows = self.offset, self.rows
        while start < end:
            data = file.read(start, min(end, start + limits.PIECE_BYTES_MAX))
            cut = data.rfind(b"\n") + 1
            if cut == 0:
                data = self._long_line(file, start, end, rows)
                cut = len(data)
            yield data[:cut]
            start += cut
            rows += data.count(b"\n", 0, cut)

    def _long_line(self, file: SourceFile, start: int, end: int, rows: int) -> bytes:
        """One line that is longer than a piece. Raises LimitExceeded, ForeignWriter."""
        parts: list[bytes] = []
        for block in _blocks(file, start, min(end, start + LINE_BYTES_MAX)):
            cut = block.find(b"\n") + 1
            parts.append(block[:cut] if cut else block)
            if cut:
                break
        line = b"".join(parts)
        if line.endswith(b"\n") and (
            self._target.takes_split_lines or len(line) <= limits.PIECE_BYTES_MAX
        ):
            return line
        if not line.endswith(b"\n") and len(line) < min(end - start, LINE_BYTES_MAX):
            raise ForeignWriter(
                f"{file.path} was cut at byte {start + len(line)} while it was read; try again",
                path=file.path,
            )
        raise LimitExceeded(
            f"{file.path}, line {rows + 1} (byte {start}): a row of {len(line)} bytes or more, and"
            f" at most {limits.PIECE_BYTES_MAX} are taken; the rows before it are",
            path=file.path,
            line=rows + 1,
        )

    def _sealed(self, file: SourceFile, at: int) -> BernsteinError:
        return RunSealed(
            f"{self._target.owner} is finished and sealed here with the first {at} bytes of"
            f" {file.path}, which has more: who wrote on after the end? What is here stays;"
            " import it elsewhere with --sdd-dir",
            path=file.path,
        )

    def _named(self, file: SourceFile, broken: ChainBroken) -> ChainBroken:
        facts = {name: value for name, value in broken.metadata.items() if name != "path"}
        return ChainBroken(
            f"{self._target.owner}: {file.path}, {broken.message}; the rows before it are taken,"
            " it and those behind it are not",
            path=file.path,
            **facts,
        )


def _blocks(file: SourceFile, start: int, end: int) -> Iterator[bytes]:
    """The bytes up to `end`; fewer when the file was cut."""
    for at in range(start, end, BLOCK_BYTES):
        yield file.read(at, min(end, at + BLOCK_BYTES))


def _first_other_line(file: SourceFile, target: Target, stored: int) -> int:
    """The line from which on a file is not what is stored, as far as a piece tells; 0 if none."""
    rows = 0
    for start in range(0, stored, limits.PIECE_BYTES_MAX):
        data = file.read(start, min(stored, start + limits.PIECE_BYTES_MAX))
        try:
            target.append(start, data, None)
        except (HeadMoved, RunSealed):
            return rows + 1
        rows += data.count(b"\n")
    return 0
