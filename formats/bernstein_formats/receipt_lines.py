"""Reads what a receipt is made of, line by line: stricter than a parser, and as quick as one."""

from collections.abc import Callable, Iterable
from functools import partial
from math import isfinite
from typing import Final, TypeAlias

from bernstein_formats.canonical import (
    JsonValue,
    Profile,
    canonical_bytes,
    judge,
    judged_bytes,
    members_are_unique,
    parse_json_unique,
    parse_loosely,
)
from bernstein_formats.errors import InvalidInput
from bernstein_formats.journal_reader import Row

Write: TypeAlias = Callable[[JsonValue], bytes]

CLOCK_MEMBERS: Final = ("ts", "elapsed_s")

write_exactly: Write = partial(canonical_bytes, profile=Profile.PY_JSON)
_write_judged = judged_bytes(Profile.PY_JSON)
_judge = judge(Profile.PY_JSON)


def object_of(value: JsonValue) -> Row:
    if not isinstance(value, dict):
        raise InvalidInput("not a JSON object; a row is one")
    return value


def read_object(text: bytes) -> Row:
    """Parse an object in which no member is there twice and every number is finite."""
    value = object_of(parse_json_unique(text))
    refuse_non_finite(value.values())
    return value


def read_row(line: bytes) -> tuple[Row, Write, bytes]:
    """Parse a stored row, drop its clocks; give also the writer of its canonical bytes, and these.

    The quick way is left where a number needs care or a member might be there twice.
    """
    row = parse_loosely(line)
    if type(row) is dict and _judge(row.values()):
        members = len(row)
        row.pop("ts", None)
        row.pop("elapsed_s", None)
        written = _write_judged(row)
        if members_are_unique(line, written, members - len(row)):
            return row, _write_judged, written
    row = object_of(parse_json_unique(line))
    for name in CLOCK_MEMBERS:
        row.pop(name, None)
    refuse_non_finite(row.values())
    return row, write_exactly, write_exactly(row)


def read_canonical_row(text: bytes) -> tuple[Row, Write]:
    """Parse a row that must be its own canonical bytes, so that no member can be there twice."""
    row = parse_loosely(text)
    write = _write_judged
    if type(row) is not dict or not _judge(row.values()):
        row, write = read_object(text), write_exactly
    if write(row) != text:
        raise InvalidInput("not the canonical bytes of the row")
    return row, write


def refuse_non_finite(values: Iterable[JsonValue]) -> None:
    """Raise InvalidInput where NaN or an infinity is: Python reads them, JSON has none."""
    waiting = [values]
    while waiting:
        for value in waiting.pop():
            if isinstance(value, float):
                if not isfinite(value):
                    raise InvalidInput("NaN and the infinities are not JSON; send null instead")
            elif isinstance(value, dict):
                waiting.append(value.values())
            elif isinstance(value, list):
                waiting.append(value)


def misshapen_member(row: Row) -> str | None:
    """The first envelope member that no journal would have written so (section 4.1, no. 10)."""
    if type(row.get("index")) is not int:
        return "index"
    if not _is_text(row.get("event")):
        return "event"
    if not isinstance(row.get("prev_hash"), str):
        return "prev_hash"
    for name in ("payload_hash", "event_hash"):
        if not _is_text(row.get(name)):
            return name
    return None


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str) and value != ""
