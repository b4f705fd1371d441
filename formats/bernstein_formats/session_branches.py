"""The branches of a step journal that two writers have extended (field case F19).

Rules: docs/formats/session-journal.md, section 14.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal import GENESIS, as_text, step_hash, whole_number
from bernstein_formats.session_journal_reader import Fault, numbered_rows, physical_lines


@dataclass(frozen=True, slots=True)
class Branch:
    """One way through the tree: its last hash, and the physical lines of its rows, in order."""

    head_hash: str
    lines: tuple[int, ...]


def find_branches(chunks: Iterable[bytes]) -> list[Branch]:
    """Find every branch, in the order of their last lines. One branch: nothing was forked."""
    line_of: dict[str, int] = {}
    before: dict[str, str] = {}
    seq_of = {GENESIS: -1}
    for number, row in numbered_rows(chunks):
        if isinstance(row, Fault) or not _holds(row, seq_of):
            continue
        hashed, prev = as_text(row["step_hash"]), as_text(row["prev_hash"])
        if hashed not in line_of:
            line_of[hashed], before[hashed] = number, prev
            seq_of[hashed] = seq_of[prev] + 1
    followed = set(before.values())
    heads = [hashed for hashed in line_of if hashed not in followed]
    return [Branch(head, _way(head, line_of, before)) for head in heads]


def branch_lines(chunks: Iterable[bytes], branch: Branch) -> Iterable[bytes]:
    """The stored lines of a branch, byte for byte, each with an end."""
    wanted = set(branch.lines)
    for number, line in enumerate(physical_lines(chunks), 1):
        if number in wanted:
            yield line if line.endswith((b"\n", b"\r")) else line + b"\n"


def _holds(row: Row, seq_of: dict[str, int]) -> bool:
    """Whether a row's own hash holds, and it follows a row that was there before it."""
    if "step_hash" not in row or step_hash(row) != as_text(row["step_hash"]):
        return False
    prev = as_text(row.get("prev_hash", ""))
    return prev in seq_of and whole_number(row.get("seq", -1)) == seq_of[prev] + 1


def _way(head: str, line_of: dict[str, int], before: dict[str, str]) -> tuple[int, ...]:
    lines = []
    while head != GENESIS:
        lines.append(line_of[head])
        head = before[head]
    return tuple(reversed(lines))
