"""Takes a receipt file apart: quickly and row by row while it is canonical, else as a whole.

The quick way reads each row from where the next one seems to begin and writes it again: only the
same bytes will do. A file that passes is the canonical text of what was read, whatever was guessed
on the way, so no member can be there twice. Where it does not pass, the whole is parsed.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_formats.journal_reader import Row
from bernstein_formats.receipt_lines import (
    Write,
    object_of,
    read_canonical_row,
    read_object,
    write_exactly,
)

if TYPE_CHECKING:
    import mmap

# A receipt's bytes, or its mapped file: then no more than a row of it is held at a time.
Content: TypeAlias = "bytes | mmap.mmap"

_BEFORE_ROWS: Final = re.compile(rb'"journal":\{"event_count":[0-9]+,"events":\[(?=\{)')
_AFTER_ROWS: Final = b'}],"head_hash":'
_BETWEEN_ROWS: Final = b'},{"'
_WINDOW_BYTES: Final = 64 * 1024
_ROWS_LEFT_OUT: Final = "\x00 rows left out"


@dataclass(frozen=True, slots=True)
class ReceiptDocument:
    """A receipt's members, and its journal rows apart; `rows` can be gone through once.

    `whole` says that the list in `members` has them too. Otherwise they are read while one goes,
    and InvalidInput takes back that the document was canonical.
    """

    members: Row
    rows: Iterator[tuple[Row, Write]]
    canonical: bool
    whole: bool


def canonical_document(data: Content) -> ReceiptDocument:
    """The file as its own canonical text, or InvalidInput: now, or while its rows are read."""
    begin, end = _row_span(data)
    left_out = write_exactly(_ROWS_LEFT_OUT)
    text = data[:begin] + left_out + data[end:].removesuffix(b"\n")
    members = read_object(text)
    journal = object_of(members.get("journal"))
    if journal.get("events") != [_ROWS_LEFT_OUT] or text.count(left_out) != 1:
        raise InvalidInput("the journal's rows are not where they should be")
    if write_exactly(members) != text:
        raise InvalidInput("not the canonical bytes of the receipt")
    return ReceiptDocument(members, _rows(data, begin, end), canonical=True, whole=False)


def parsed_document(data: bytes) -> ReceiptDocument:
    """The file as any JSON text of an object; InvalidInput says why it is none."""
    members = read_object(data)
    journal = members.get("journal")
    events = journal.get("events") if isinstance(journal, dict) else None
    rows = events if isinstance(events, list) else []
    canonical = write_exactly(members) == data.removesuffix(b"\n")
    writable = ((object_of(row), write_exactly) for row in rows)
    return ReceiptDocument(members, writable, canonical, whole=True)


def _row_span(data: Content) -> tuple[int, int]:
    before = _BEFORE_ROWS.search(data)
    end = data.rfind(_AFTER_ROWS) + 1
    if before is None or end <= before.end():
        raise InvalidInput("no journal rows in their canonical place")
    return before.end(), end


def _rows(data: Content, begin: int, end: int) -> Iterator[tuple[Row, Write]]:
    while begin < end:
        stop = data.find(_BETWEEN_ROWS, begin, end) + 1 or end
        try:
            row = read_canonical_row(data[begin:stop])
        except InvalidInput:  # objects side by side within the row look like its end
            stop = _end_of_value(data, begin, end)
            row = read_canonical_row(data[begin:stop])
        yield row
        if stop > end or (stop < end and data[stop : stop + 1] != b","):
            raise InvalidInput("something else than a comma between two rows")
        begin = stop + 1


def _end_of_value(data: Content, begin: int, end: int) -> int:
    """Where the value at `begin` ends, looked for in ever larger parts."""
    size = _WINDOW_BYTES
    while True:
        text = data[begin : min(begin + size, end)].decode("ascii", errors="replace")
        try:
            value: tuple[JsonValue, int] = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError) as error:
            if begin + size >= end:
                raise InvalidInput("not a JSON value") from error
            size *= 4
            continue
        return begin + value[1]
