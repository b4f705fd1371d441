"""Where two step journals part, by the canonical bytes of their hashed members.

Rules: docs/formats/session-journal.md, section 12.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.journal_reader import Row

_COMPARED: Final = (
    "prev_hash", "input_hash", "model", "prompt", "tool_call", "tool_result", "effort",
)  # fmt: skip
# What a path diff shows of a step.
_SHOWN: Final = _COMPARED[:-1]


@dataclass(frozen=True, slots=True)
class StepDifference:
    """The first step in which two chains differ."""

    seq: int
    fields_changed: tuple[str, ...]
    left_values: dict[str, JsonValue]
    right_values: dict[str, JsonValue]
    reason: str

    def as_json(self) -> dict[str, JsonValue]:
        """The peer's members."""
        return {
            "seq": self.seq,
            "fields_changed": list(self.fields_changed),
            "left_values": self.left_values,
            "right_values": self.right_values,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class PathDiff:
    """Two chains side by side, up to the first difference."""

    divergence: StepDifference | None
    steps: tuple[dict[str, JsonValue], ...]

    def as_json(self) -> dict[str, JsonValue]:
        """The peer's members; here, and here only, it sorts the names of what changed."""
        divergence = None if self.divergence is None else self.divergence.as_json()
        if self.divergence is not None and divergence is not None:
            divergence["fields_changed"] = _sorted(self.divergence)
        return {
            "diverged": divergence is not None,
            "divergence": divergence,
            "steps": list(self.steps),
        }

    @property
    def diff_hash(self) -> str:
        return sha256(canonical_bytes(self.as_json(), Profile.PY_JSON)).hexdigest()

    def file_bytes(self) -> bytes:
        """What is stored of it."""
        document = {**self.as_json(), "diff_hash": self.diff_hash}
        return canonical_bytes(document, Profile.PY_JSON) + b"\n"


def diff_steps(left: Iterable[Row], right: Iterable[Row]) -> StepDifference | None:
    """Compare two chains' rows, in normal form, pair by pair; None when nothing differs."""
    return next((found for _, _, found in _pairs(left, right) if found is not None), None)


def path_diff(left: Iterable[Row], right: Iterable[Row]) -> PathDiff:
    """Put two chains side by side."""
    steps: list[dict[str, JsonValue]] = []
    divergence: StepDifference | None = None
    for a, b, found in _pairs(left, right):
        divergence = found
        if a is not None and b is not None:
            steps.append(_side_by_side(a, b, found))
        if found is not None:
            break
    return PathDiff(divergence, tuple(steps))


def _side_by_side(a: Row, b: Row, found: StepDifference | None) -> dict[str, JsonValue]:
    return {
        "seq": a["seq"],
        "left": {name: a.get(name) for name in _SHOWN},
        "right": {name: b.get(name) for name in _SHOWN},
        "diverged": found is not None,
        "fields_changed": [] if found is None else _sorted(found),
    }


def _sorted(found: StepDifference) -> list[JsonValue]:
    return [*sorted(found.fields_changed)]


def _pairs(
    left: Iterable[Row], right: Iterable[Row]
) -> Iterator[tuple[Row | None, Row | None, StepDifference | None]]:
    rows = zip_longest(left, right)
    for count, (a, b) in enumerate(rows):
        if a is None or b is None:
            extra = 1 + sum(1 for _ in rows)
            yield a, b, _length(count, extra, left_is_longer=b is None)
            return
        changed = tuple(name for name in _COMPARED if _form(a, name) != _form(b, name))
        yield a, b, _changed(a, b, changed) if changed else None


def _form(row: Row, name: str) -> bytes:
    return canonical_bytes(row.get(name), Profile.PY_JSON)


def _changed(a: Row, b: Row, changed: tuple[str, ...]) -> StepDifference:
    seq = a["seq"]
    assert isinstance(seq, int)
    return StepDifference(
        seq,
        changed,
        {name: a.get(name) for name in changed},
        {name: b.get(name) for name in changed},
        f"field(s) differ: {', '.join(changed)}",
    )


def _length(count: int, extra: int, *, left_is_longer: bool) -> StepDifference:
    side = "left" if left_is_longer else "right"
    longer, shorter = {"steps": count + extra}, {"steps": count}
    return StepDifference(
        count,
        ("length",),
        {**(longer if left_is_longer else shorter)},
        {**(shorter if left_is_longer else longer)},
        f"chain length mismatch: {side} has {extra} extra step(s) past seq {count - 1};"
        " missing step would be at this seq",
    )
