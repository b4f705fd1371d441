"""Verifies a step journal, and finds where it can be continued.

Rules: docs/formats/session-journal.md, sections 5 and 6. Verifying never stops early; recovering
stops at the first fault that is not a torn end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import JournalError
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal import (
    GENESIS,
    StepHead,
    as_text,
    normal_row,
    row_bytes,
    step_hash,
    whole_number,
)
from bernstein_formats.session_journal_reader import (
    Fault,
    FaultKind,
    numbered_rows,
    physical_lines,
)

# More faults than this are counted, not listed.
FAULTS_LISTED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class StepsVerification:
    """The verdict on a chain: its last stored hash, its rows, and what is wrong."""

    head_hash: str
    steps: int
    faults: tuple[Fault, ...]
    fault_count: int

    @property
    def ok(self) -> bool:
        return not self.fault_count


class Walk:
    """Goes along a chain, row by row, and notes every fault."""

    def __init__(self, place: str = "line") -> None:
        """`place` is how a line is called in texts."""
        self._place = place
        self._faults: list[Fault] = []
        self._fault_count = 0
        self.head_hash = GENESIS
        self.steps = 0

    def take(self, number: int, row: Row | Fault) -> None:
        """Take what stands on the next line that is not blank."""
        if isinstance(row, Fault):
            self.note(Fault(row.kind, number, f"{self._place} {number}: {row.text}"))
            return
        seq, prev = row.get("seq", -1), as_text(row.get("prev_hash", ""))
        stored, hashed = as_text(row.get("step_hash", "")), step_hash(row)
        if whole_number(seq) != self.steps:
            self._mismatch(FaultKind.SEQ, number, str(self.steps), _shown(seq))
        if prev != self.head_hash:
            self._mismatch(FaultKind.PREV_HASH, number, short(self.head_hash), short(prev))
        if hashed != stored:
            self._mismatch(FaultKind.STEP_HASH, number, short(hashed), short(stored))
        self.head_hash = stored
        self.steps += 1

    def note(self, fault: Fault) -> None:
        """Add a fault to the verdict."""
        self._fault_count += 1
        if self._fault_count <= FAULTS_LISTED_MAX:
            self._faults.append(fault)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong so far."""
        return not self._fault_count

    def verdict(self) -> StepsVerification:
        return StepsVerification(self.head_hash, self.steps, tuple(self._faults), self._fault_count)

    def _mismatch(self, kind: FaultKind, number: int, expected: str, got: str) -> None:
        what = kind.value.removesuffix("_mismatch")
        text = f"{self._place} {number}: {what} mismatch (expected {expected}, got {got})"
        self.note(Fault(kind, number, text))


def verify_steps(
    chunks: Iterable[bytes] | None, expected_head: str | None = None
) -> StepsVerification:
    """Verify a journal; None is one that is not there."""
    walk = Walk()
    for number, row in numbered_rows(chunks or ()):
        walk.take(number, row)
    if expected_head is not None and expected_head != walk.head_hash:
        if chunks is None:
            text = f"there is no journal, and its head should be {expected_head!r}"
            walk.note(Fault(FaultKind.JOURNAL_ABSENT, None, text))
        else:
            text = f"head mismatch: expected {short(expected_head)}, got {short(walk.head_hash)}"
            walk.note(Fault(FaultKind.EXPECTED_HEAD, None, text))
    return walk.verdict()


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a journal goes on."""

    head: StepHead
    # Bytes up to the end of the last good row; what follows them is to be put aside.
    size: int
    # Whether the last good row lacks the end of its line.
    newline_missing: bool
    # The first physical line of a torn end; None when nothing is torn.
    torn_line: int | None


def recover_steps(chunks: Iterable[bytes], where: str) -> Recovered:
    """Find where to go on. Raises JournalError, with the line, for anything but a torn end.

    `where` names the journal in texts.
    """
    tail = Continuation(where)
    size = good_size = 0
    newline_missing = False
    for number, line in enumerate(physical_lines(chunks), 1):
        size += len(line)
        if not any(tail.admit(number, row) for _, row in numbered_rows([line])):
            continue
        good_size, newline_missing = size, not line.endswith((b"\n", b"\r"))
    torn = tail.torn_line
    return Recovered(tail.head, size if torn is None else good_size, newline_missing, torn)


def seed_rows(
    chunks: Iterable[bytes], last_seq: int, where: str, each: Callable[[bytes], object]
) -> StepHead:
    """Give the rows 0 to `last_seq`, written anew and with their LF, to `each`; and their head.

    What follows them is not looked at. Raises JournalError when they are not a good chain, or not
    all there.
    """
    tail = Continuation(where)
    for number, row in numbered_rows(chunks):
        if tail.admit(number, row):
            assert isinstance(row, dict)
            each(row_bytes(normal_row(row)) + b"\n")
            if tail.head.seq > last_seq:
                return tail.head
    raise JournalError(
        f"parent journal does not contain step {last_seq}; have {tail.head.seq} step(s)",
        steps=tail.head.seq,
    )


class Continuation:
    """The chain as far as it is good: the tip comes from recomputed hashes only."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.head = StepHead()
        self.torn_line: int | None = None

    def admit(self, number: int, row: Row | Fault) -> bool:
        """Whether the line is the next good row; False when it may be part of a torn end."""
        if isinstance(row, Fault) or "step_hash" not in row:
            self.torn_line = self.torn_line or number
            return False
        if self.torn_line is not None:
            raise self._refused(self.torn_line, f"is corrupt but line {number} continues the chain")
        hashed = self._checked(number, row)
        self.head = StepHead(self.head.seq + 1, hashed)
        return True

    def _checked(self, number: int, row: Row) -> str:
        seq = whole_number(row.get("seq", -1))
        if seq is None:
            raise self._refused(number, f"has a non-integer seq (got {_shown(row['seq'])})")
        if seq != self.head.seq:
            raise self._refused(number, f"seq mismatch (expected {self.head.seq}, got {seq})")
        prev = as_text(row.get("prev_hash", ""))
        if prev != self.head.head_hash:
            expected = short(self.head.head_hash)
            raise self._refused(
                number, f"prev_hash mismatch (expected {expected}, got {short(prev)})"
            )
        hashed, stored = step_hash(row), as_text(row["step_hash"])
        if hashed != stored:
            raise self._refused(
                number, f"step_hash mismatch (recomputed {short(hashed)}, stored {short(stored)})"
            )
        return hashed

    def _refused(self, number: int, what: str) -> JournalError:
        return JournalError(
            f"{self._where}: line {number} {what}; nothing is appended to it: verify it, and move"
            " it aside to start anew",
            line=number,
        )


def short(text: str) -> str:
    """The part of a hash that texts show."""
    return f"{text[:16]}..."


def _shown(value: object) -> str:
    return repr(value)[:80]
