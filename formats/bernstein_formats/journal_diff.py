"""Finds where two runs' logs part, and whether only the order of their tasks' outcomes differs.

Rules: docs/formats/llm-record-replay.md, section 4; stricter in that 1, 1.0 and true are three
different values. The stored payload_hash is trusted; verify a journal to check it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, zip_longest

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.journal_reader import Row, accepted_rows
from bernstein_formats.provider_state import MUTATION

COMPARED_NAMES = ("kind", "key", "response", "event", "payload_hash")
ONLY_ORDER = (
    "per task the outcomes are equal; only their order differs,"
    " so this is scheduling and no changed result"
)


@dataclass(frozen=True, slots=True)
class JournalDiff:
    """The first difference (none: `diverged` is false), with the peer's words; notes are ours."""

    diverged: bool
    index: int | None
    reason: str
    reason_code: str
    mutation_kind: str = ""
    a_event: Row | None = None
    b_event: Row | None = None
    notes: tuple[str, ...] = ()


def diff_journals(a_chunks: Iterable[bytes], b_chunks: Iterable[bytes]) -> JournalDiff:
    """Compare two logs row by row; lines that are no rows are passed over."""
    pairs = enumerate(zip_longest(_rows(a_chunks), _rows(b_chunks)))
    count = 0
    for index, (a, b) in pairs:
        if a is None or b is None or _compared(a) != _compared(b):
            return _difference(index, a, b, (pair for _, pair in pairs))
        count = index + 1
    reason = f"identical: {count} events match" if count else "both event logs are empty"
    return JournalDiff(diverged=False, index=None, reason=reason, reason_code="")


def _rows(chunks: Iterable[bytes]) -> Iterator[Row]:
    return (row for _, row in accepted_rows(chunks))


def _compared(row: Row) -> bytes:
    """Give what two rows are compared by, in a form that tells 1, 1.0 and true apart."""
    return canonical_bytes([row.get(name) for name in COMPARED_NAMES], Profile.PY_JSON)


def _difference(
    index: int, a: Row | None, b: Row | None, rest: Iterable[tuple[Row | None, Row | None]]
) -> JournalDiff:
    a_tail, b_tail = _Tail(), _Tail()
    for a_row, b_row in chain([(a, b)], rest):
        a_tail.take(a_row)
        b_tail.take(b_row)
    for name, row in ("run_a", a), ("run_b", b):
        if row is not None and MUTATION in (row.get("event"), row.get("kind")):
            kind = str(row.get("mutation_kind") or "unknown")
            reason = (
                f"event #{index}: provider-side context mutation ({kind}) recorded in {name}"
                " has no counterpart at this step"
            )
            return JournalDiff(True, index, reason, MUTATION, kind, a, b)
    if a is None or b is None:
        longer, tail = ("run_a", a_tail) if b is None else ("run_b", b_tail)
        reason = f"{longer} has {tail.count} extra event(s) after index {max(index - 1, 0)}"
        return JournalDiff(True, index, reason, "length_mismatch", a_event=a, b_event=b)
    reason = f"event #{index} differs: kind/key/response triple does not match"
    notes = (ONLY_ORDER,) if a_tail.by_task == b_tail.by_task else ()
    return JournalDiff(True, index, reason, "response_mismatch", "", a, b, notes)


class _Tail:
    """One side's rows from the first difference on: how many, and each task's as one hash."""

    def __init__(self) -> None:
        self.count = 0
        self.by_task: dict[bytes, bytes] = {}

    def take(self, row: Row | None) -> None:
        """Add a row; None stands for no row."""
        if row is None:
            return
        self.count += 1
        task = canonical_bytes(row.get("task_id"), Profile.PY_JSON)
        before = self.by_task.get(task, b"")
        self.by_task[task] = sha256(before + _compared(row)).digest()
