"""What repairing a damaged journal would keep and take out; nothing that was acknowledged goes.

Two ways, each only on request. A *tail repair* cuts off lines at the very end that are no rows, as
the peer's does (docs/formats/event-journal.md, section 11). A *recovery* also takes rows out of
damaged lines: a row counts if it follows its predecessor by hash, so that none can be made up.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bernstein_formats.canonical import Profile
from bernstein_formats.errors import InvalidInput, JournalError
from bernstein_formats.event_journal import event_hash, payload_hash
from bernstein_formats.journal_reader import (
    LINE_BYTES_MAX,
    Row,
    accepted_rows,
    is_blank,
    parse_row,
)
from bernstein_formats.journal_verify import JournalSeal, JournalVerification, verify_journal

# Called anew for each pass over the file.
Read = Callable[[], Iterable[bytes]]

_ROW_BEGINS = b'{"ts": '
# A damaged line is searched for this many beginnings of rows.
_BEGINNINGS_MAX = 16


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair does; the peer's members first.

    `keep_bytes` is where the file is cut; None when it is written anew from `recovered_lines`.
    """

    repaired: bool
    removed_line_indices: tuple[int, ...]
    event_count: int
    head: str
    keep_bytes: int | None = None
    adds_newline: bool = False
    recovered_count: int = 0


def plan_tail_repair(read: Read, seal: JournalSeal | None = None) -> Repair:
    """What cutting the torn end off would do. Raises JournalError where that is not safe."""
    found = verify_journal(read())
    if not found.discarded_count:
        return _nothing_to_cut(read, found)
    survey = _survey(read, found)
    if not survey.is_tail:
        raise _refused(
            f"line {found.discarded_line_indices[0] + 1} is no row and good ones follow: this is"
            " corruption and no torn write; a tail repair only cuts the end"
        )
    kept = verify_journal(_lines_before(read, survey.first_line))
    if not kept.chain_consistent:
        raise _refused(f"what would remain is broken: {'; '.join(kept.errors)}")
    _check_seal(kept, seal)
    rows = sum(1 for _ in _rows_in(survey.damaged, kept.head, kept.count, _profile(kept)))
    if rows:
        raise _refused(
            f"{_described(rows, survey.damaged)}: a tail repair would delete"
            " what was acknowledged; `--recover` keeps it"
        )
    return Repair(
        repaired=True,
        removed_line_indices=tuple(range(survey.first_line, survey.line_count)),
        event_count=kept.count,
        head=kept.head,
        keep_bytes=survey.keep_bytes,
    )


def plan_recovery(read: Read, seal: JournalSeal | None = None) -> Repair:
    """What taking rows out of damaged lines would do, wherever those are.

    Raises JournalError unless the result is one consistent chain with every row that was readable.
    """
    found = verify_journal(read())
    if not found.discarded_count:
        return _nothing_to_cut(read, found)
    recovery = _Recovery(read)
    result = verify_journal(recovery.lines())
    if not result.chain_consistent or result.discarded_count:
        raise _refused(
            f"rows are missing that cannot be recovered: {'; '.join(result.errors)};"
            " restore the file from a copy"
        )
    _check_seal(result, seal)
    return Repair(
        repaired=True,
        removed_line_indices=tuple(recovery.damaged_lines),
        event_count=result.count,
        head=result.head,
        recovered_count=recovery.recovered_count,
    )


def recovered_lines(read: Read) -> Iterator[bytes]:
    """The content that `plan_recovery` judged."""
    return _Recovery(read).lines()


def _nothing_to_cut(read: Read, found: JournalVerification) -> Repair:
    """No line is damaged; at most the last one lacks its end, and the next row would join it."""
    lacks_newline = any(each.reason == "final_newline_missing" for each in found.findings)
    adds_newline = lacks_newline and found.chain_consistent
    head = found.head if found.chain_consistent else _last_stored_hash(read)
    return Repair(adds_newline, (), found.count, head, adds_newline=adds_newline)


def _last_stored_hash(read: Read) -> str:
    last: Row = {}
    for _, row in accepted_rows(read()):
        last = row
    return str(last.get("event_hash", ""))


def _check_seal(kept: JournalVerification, seal: JournalSeal | None) -> None:
    if seal is not None and (seal.head, seal.event_count) != (kept.head, kept.count):
        raise _refused(
            f"{kept.count} rows up to head {kept.head or '(empty)'} would remain, and the run is"
            f" sealed with {seal.event_count} up to {seal.head or '(empty)'}"
        )


def _refused(text: str) -> JournalError:
    return JournalError(text)


def _described(rows: int, damaged: list[bytes]) -> str:
    nuls = sum(line.count(b"\0") for line in damaged)
    what = f"{nuls} NUL bytes" if nuls else "what is glued to it"
    return f"{rows} row{'s are' if rows > 1 else ' is'} recoverable after removing {what}"


def _profile(found: JournalVerification) -> Profile:
    return found.profile or Profile.PY_JSON


@dataclass(frozen=True, slots=True)
class _Survey:
    """Where the damage begins, and what follows up to the end of the file."""

    first_line: int
    line_count: int
    keep_bytes: int
    damaged: list[bytes]
    is_tail: bool


def _survey(read: Read, found: JournalVerification) -> _Survey:
    first = found.discarded_line_indices[0]
    keep_bytes = line_count = 0
    damaged: list[bytes] = []
    for number, line in enumerate(physical_lines(read())):
        line_count = number + 1
        if number < first:
            keep_bytes += len(line)
        elif len(damaged) < found.discarded_count:
            damaged.append(line)
    is_tail = line_count - first == found.discarded_count
    return _Survey(first, line_count, keep_bytes, damaged if is_tail else [], is_tail)


def _lines_before(read: Read, first: int) -> Iterator[bytes]:
    for number, line in enumerate(physical_lines(read())):
        if number >= first:
            return
        yield line


def physical_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines with their ends, cut as the reader cuts them: at LF, CRLF and a lone CR."""
    begun: list[bytes] = []
    for chunk in filter(None, chunks):
        if begun and begun[-1].endswith(b"\r") and not chunk.startswith(b"\n"):
            yield b"".join(begun)
            begun.clear()
        *ended, last = chunk.splitlines(keepends=True)
        for piece in ended:
            yield b"".join([*begun, piece])
            begun.clear()
        begun.append(last)
        if last.endswith(b"\n"):
            yield b"".join(begun)
            begun.clear()
    if begun:
        yield b"".join(begun)


class _Recovery:
    """One pass over a file that writes down what can be saved."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._head = ""
        self._count = 0
        self._profile: Profile | None = None
        self.damaged_lines: list[int] = []
        self.recovered_count = 0

    def lines(self) -> Iterator[bytes]:
        """Good lines as they are, and the rows in the others, each with an end of its own."""
        for number, line in enumerate(physical_lines(self._read())):
            row = _row_on(line)
            if row is not None:
                self._advance(row)
                yield line if line.endswith((b"\n", b"\r")) else line + b"\n"
            elif is_blank(line):
                yield line
            else:
                self.damaged_lines.append(number)
                yield from self._saved(line)

    def _saved(self, line: bytes) -> Iterator[bytes]:
        profile = self._profile or Profile.PY_JSON
        for text, row in _rows_in([line], self._head, self._count, profile):
            self._advance(row)
            self.recovered_count += 1
            yield text + b"\n"

    def _advance(self, row: Row) -> None:
        if self._profile is None:
            self._profile = _profile_of(row)
        self._head = str(row.get("event_hash", ""))
        self._count += 1


def _profile_of(first: Row) -> Profile:
    return Profile.JCS if first.get("hash_profile") == Profile.JCS else Profile.PY_JSON


def _row_on(line: bytes) -> Row | None:
    try:
        value = parse_row(line)
    except InvalidInput:
        return None
    return value if isinstance(value, dict) else None


def _rows_in(
    lines: Iterable[bytes], head: str, count: int, profile: Profile
) -> Iterator[tuple[bytes, Row]]:
    """The rows in damaged lines that follow a head, one after the other."""
    for line in lines:
        if len(line) > LINE_BYTES_MAX:
            continue
        text = line.replace(b"\0", b"").strip(b"\r\n")
        begin = 0
        for start, end in _candidates(text):
            if start < begin:
                continue
            row = _row_on(text[start:end])
            if row is not None and not count:
                profile = _profile_of(row)
            if row is not None and _follows(row, head, count, profile):
                yield text[start:end].strip(), row
                head, count, begin = str(row["event_hash"]), count + 1, end


def _candidates(text: bytes) -> Iterator[tuple[int, int]]:
    """Where a row may begin and end: at the beginnings of rows, the longest first."""
    starts: list[int] = []
    at = text.find(_ROW_BEGINS)
    while at >= 0 and len(starts) < _BEGINNINGS_MAX:
        starts.append(at)
        at = text.find(_ROW_BEGINS, at + 1)
    for start in starts:
        ends = [each for each in starts if each > start]
        yield from ((start, end) for end in (len(text), *reversed(ends)))


def _follows(row: Row, head: str, count: int, profile: Profile) -> bool:
    """Whether a row is the next one of the chain, by its content."""
    event = row.get("event")
    if not isinstance(event, str) or row.get("prev_hash") != head or row.get("index") != count:
        return False
    try:
        payload_hex = payload_hash(row, event, profile)
        return row.get("event_hash") == event_hash(head, event, payload_hex, count, profile)
    except InvalidInput:
        return False
