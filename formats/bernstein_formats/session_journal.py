"""The step journal of one agent's session: a step's hash, and the bytes of the next row.

Rules: docs/formats/session-journal.md, sections 2 and 3.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import (
    JsonValue,
    Profile,
    canonical_bytes,
    check_depth,
    parse_json_unique,
    spelled_members,
)
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.journal_reader import Row

GENESIS: Final = "0" * 64
SCHEMA_VERSION: Final = 2
# Depth of what we write; what others wrote is read as deep as any JSON.
STEP_DEPTH_MAX: Final = 128

_HASHED: Final = ("input_hash", "model", "prev_hash", "prompt", "tool_call", "tool_result")
_TEXTS: Final = ("model", "prompt", "effort")
_STEP_MEMBERS: Final = frozenset(
    {"input_hash", "model", "prompt", "tool_call", "tool_result", "effort", "blob_refs"}
)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StepHead:
    """Where the next row goes: its number, and the hash of the row before it."""

    seq: int = 0
    head_hash: str = GENESIS


def is_digest(text: object) -> bool:
    """Whether this is a SHA-256 in lower-case hexadecimal."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def step_hash(row: Row) -> str:
    """Hash a row's hashed members; those that are missing count as null."""
    document = {name: row.get(name) for name in _HASHED}
    document["prev_hash"] = as_text(row.get("prev_hash", ""))
    document["input_hash"] = as_text(row.get("input_hash", ""))
    if row.get("effort") is not None:
        document["effort"] = row["effort"]
    return sha256(canonical_bytes(document, Profile.PY_JSON)).hexdigest()


def row_bytes(row: Row) -> bytes:
    """Write a row as the peer's writer does, without its LF."""
    return canonical_bytes(row, Profile.PY_JSON)


def parse_step(text: bytes) -> Row:
    """Check what a caller wants recorded: the JSON object of a step's own members.

    It is parsed before anything is hashed, so that what is hashed is what will be read back.
    """
    step = parse_json_unique(text)
    if not isinstance(step, dict):
        raise InvalidInput("a step must be a JSON object")
    unknown = sorted(step.keys() - _STEP_MEMBERS)
    if unknown:
        raise InvalidInput(f"a step has no member {unknown[0]!r}; put it into tool_call or -result")
    spelled_members(step)  # refuses NaN and the infinities, which other readers do not take
    check_depth(step, STEP_DEPTH_MAX)
    _check_step(step)
    return step


def _check_step(step: Row) -> None:
    if not is_digest(step.get("input_hash")):
        raise InvalidInput("input_hash must be the input's SHA-256 in lower-case hexadecimal")
    for name in _TEXTS:
        if not isinstance(step.get(name), str | None):
            raise InvalidInput(f"{name} must be text or null", member=name)
    refs = step.get("blob_refs")
    if refs is not None and not (isinstance(refs, list) and all(map(is_digest, refs))):
        raise InvalidInput("blob_refs must be a list of SHA-256 digests in lower-case hexadecimal")


def next_step(head: StepHead, step: Mapping[str, JsonValue], ts: float) -> tuple[bytes, StepHead]:
    """Make the next row (without its LF) and the head after it. `step` has been checked."""
    row: Row = {name: step.get(name) for name in _HASHED if name != "prev_hash"}
    if step.get("effort") is not None:
        row["effort"] = step["effort"]
    row["prev_hash"] = head.head_hash
    row["step_hash"] = hashed = step_hash(row)
    row |= {"seq": head.seq, "ts": ts, "schema_version": SCHEMA_VERSION}
    row["blob_refs"] = step.get("blob_refs") or []
    return row_bytes(row), StepHead(head.seq + 1, hashed)


def normal_row(row: Row) -> Row:
    """Fill in a stored row what it lacks and leave out what is unknown, as the peer's reader does.

    Raises RowMalformed for a member that cannot be what it must be.
    """
    for name in ("seq", "prev_hash", "input_hash", "step_hash"):
        if name not in row:
            raise RowMalformed(f"the row has no {name}")
    normal: Row = {
        "seq": _whole(row, "seq"),
        "prev_hash": as_text(row["prev_hash"]),
        "input_hash": as_text(row["input_hash"]),
        "model": row.get("model"),
        "prompt": row.get("prompt"),
        "tool_call": row.get("tool_call"),
        "tool_result": row.get("tool_result"),
        "step_hash": as_text(row["step_hash"]),
        "ts": _number(row),
        "blob_refs": list(blob_refs(row)),
        "schema_version": _whole({"schema_version": 1, **row}, "schema_version"),
    }
    if row.get("effort") is not None:
        normal["effort"] = row["effort"]
    return normal


def blob_refs(row: Row) -> list[JsonValue]:
    """Give a row's references as they are; RowMalformed when they are no list."""
    refs = row.get("blob_refs")
    if refs is None:
        return []
    if not isinstance(refs, list):
        raise RowMalformed("the row's blob_refs is no list")
    return [as_text(ref) for ref in refs]


def as_text(value: JsonValue) -> str:
    """Give a member that should be text as the peer's reader takes it."""
    return value if isinstance(value, str) else str(value)


def whole_number(value: JsonValue) -> int | None:
    """Convert a number or text like Python's int(); None where that is not possible."""
    try:
        return int(value)  # type: ignore[arg-type]  # a wrong type is one of the answers
    except (TypeError, ValueError, OverflowError):
        return None


def _whole(row: Row, name: str) -> int:
    number = whole_number(row[name])
    if number is None:
        raise RowMalformed(f"the row's {name} is no whole number")
    return number


def _number(row: Row) -> float:
    try:
        return float(row.get("ts", 0.0))  # type: ignore[arg-type]  # likewise
    except (TypeError, ValueError, OverflowError):
        raise RowMalformed("the row's ts is no number") from None
