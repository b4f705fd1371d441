"""Reads a journal's bytes line by line, as forgiving as the peer's reader and never raising more.

Rules: docs/formats/event-journal.md, section 7. Where the peer's reader stops at an integer of
more than 4300 digits or at deep nesting, that line is discarded here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import InvalidInput, LimitExceeded, RowMalformed

Row: TypeAlias = dict[str, JsonValue]

# Longer lines than the peer or we ever wrote; read at all for the sake of imported journals.
LINE_BYTES_MAX: Final = 128 * 1024 * 1024


class LineBlocks:
    """The physical lines of a journal, in blocks as the chunks come.

    LF, CRLF and a lone CR end a line; the ends are taken off. Afterwards `ends_with_newline` says
    whether the last line was ended (an empty file counts as ended).
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.ends_with_newline = True

    def __iter__(self) -> Iterator[list[bytes]]:
        """Give the lines once; no more than a chunk and one line is held.

        Raises LimitExceeded where a line goes on too long.
        """
        begun: list[bytes] = []
        returns = False  # whether one is in what was begun
        for chunk in bounded(self._chunks):
            if not returns and chunk.find(b"\r") < 0:
                lines = chunk.split(b"\n")
                begun.append(lines[0])
                if len(lines) > 1:
                    lines[0] = b"".join(begun)
                    begun = [lines.pop()]
                    yield lines
                continue
            returns = True
            cut = end_of_last_line(chunk)
            if not cut:
                begun.append(chunk)
                continue
            begun.append(chunk[:cut])
            yield _split(b"".join(begun))
            begun = [chunk[cut:]]
            returns = begun[0].find(b"\r") >= 0
        rest = b"".join(begun)
        if rest:
            self.ends_with_newline = rest.endswith(b"\r")
            yield _split(rest if self.ends_with_newline else rest + b"\n")


def bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks; LimitExceeded where a line goes on too long."""
    begun = 0
    for chunk in chunks:
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        begun = len(chunk) - end if end else begun + len(chunk)
        if begun > LINE_BYTES_MAX:
            raise LimitExceeded(
                f"a line has more than {LINE_BYTES_MAX} bytes; no journal writes such rows",
                limit=LINE_BYTES_MAX,
            )
        yield chunk


def counted(chunks: Iterable[bytes], told: Callable[[int], None]) -> Iterator[bytes]:
    """The same chunks; `told` hears how many bytes have passed."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        told(done)


def end_of_last_line(chunk: bytes) -> int:
    """Find where to cut; a CR at the very end may be half of a CRLF."""
    return max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, len(chunk) - 1)) + 1


def _split(block: bytes) -> list[bytes]:
    """Split a block that ends with the end of a line."""
    if block.find(b"\r") >= 0:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = block.split(b"\n")
    lines.pop()
    return lines


def is_blank(line: bytes) -> bool:
    """Tell whether nothing but white space, by Unicode's measure, is on the line."""
    return not line.decode("utf-8", "surrogateescape").strip()


def count_lines(chunks: Iterable[bytes]) -> tuple[int, str]:
    """Count the lines that are not blank, and say whether the end plainly is no journal's."""
    blocks = LineBlocks(chunks)
    count, last = 0, b""
    for lines in blocks:
        count += sum(1 for line in lines if line and not is_blank(line))
        last = lines[-1] if lines else last
    try:
        torn = bool(last.strip()) and not isinstance(parse_row(last), dict)
    except InvalidInput:
        torn = True
    return count, "the last line is torn" if torn or not blocks.ends_with_newline else ""


def parse_row(line: bytes, parse: Callable[[bytes], JsonValue] = parse_json) -> JsonValue:
    """Parse a line that is not blank; InvalidInput if it is not one JSON value.

    White space around it, by Unicode's measure, is allowed.
    """
    try:
        return parse(line)
    except InvalidInput:
        stripped = line.decode("utf-8", "surrogateescape").strip()
        bare = stripped.encode("utf-8", "surrogateescape")
        if bare == line:
            raise
        return parse(bare)


@dataclass(frozen=True, slots=True)
class JournalLoad:
    """All rows of a journal and the physical lines (from 0) that hold none."""

    events: list[Row]
    discarded_line_indices: tuple[int, ...]
    ends_with_newline: bool


def load_events(chunks: Iterable[bytes]) -> JournalLoad:
    """Read every row into memory; for journals known to be short."""
    events: list[Row] = []
    discarded: list[int] = []
    blocks = LineBlocks(chunks)
    for number, value in _parsed_lines(blocks):
        if isinstance(value, dict):
            events.append(value)
        else:
            discarded.append(number)
    return JournalLoad(events, tuple(discarded), blocks.ends_with_newline)


def accepted_rows(chunks: Iterable[bytes]) -> Iterator[tuple[int, Row]]:
    """Give each row with its physical line (from 0); whatever else there is goes unnoticed."""
    for number, value in _parsed_lines(LineBlocks(chunks)):
        if isinstance(value, dict):
            yield number, value


def load_events_strictly(chunks: Iterable[bytes]) -> list[Row]:
    """Do the same but raise RowMalformed at the first line that is not a row of the usual shape."""
    events: list[Row] = []
    for number, value in _parsed_lines(LineBlocks(chunks)):
        if isinstance(value, InvalidInput):
            raise _malformed(number, value.message)
        if not isinstance(value, dict):
            raise _malformed(number, "it is not an object")
        member = _wrong_member(value)
        if member:
            raise _malformed(number, f"its {member!r} is missing or of the wrong type")
        events.append(value)
    return events


def _parsed_lines(blocks: LineBlocks) -> Iterator[tuple[int, JsonValue | InvalidInput]]:
    """Give each line that is not blank with its number from 0, parsed or the reason why not."""
    lines = (line for block in blocks for line in block)
    for number, line in enumerate(lines):
        try:
            yield number, parse_row(line)
        except InvalidInput as error:
            if not is_blank(line):
                yield number, error


def _wrong_member(row: Row) -> str | None:
    """Name the first envelope member that does not have the shape the writer gives it."""
    index = row.get("index")
    if not (isinstance(row.get("event"), str) and row["event"]):
        return "event"
    if not isinstance(index, int) or isinstance(index, bool):
        return "index"
    if not isinstance(row.get("prev_hash"), str):
        return "prev_hash"
    for name in "payload_hash", "event_hash":
        if not (isinstance(row.get(name), str) and row[name]):
            return name
    return None


def _malformed(number: int, what: str) -> RowMalformed:
    return RowMalformed(
        f"line {number + 1} is not a journal row: {what}; see `bernstein replay RUN --verify`",
        line=number + 1,
    )
