"""How far the new lines of a growing file are good rows, for whoever ships them meanwhile.

What is no row yet waits, since a writer may be in the middle of it, or a repair may take it away
again; a row that follows it shows that it stays. What does not link is refused, for good.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from bernstein_formats.errors import ChainBroken, InvalidInput, JournalError, RowMalformed
from bernstein_formats.event_journal import START, ChainHead
from bernstein_formats.journal_reader import Row
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.session_journal import as_text, blob_refs, is_digest
from bernstein_formats.session_journal_reader import numbered_rows
from bernstein_formats.session_journal_verify import Continuation
from bernstein_formats.spine import SpineWalk, embedded_entry

# The last event of a run, but for what the peer says about it afterwards.
COMPLETED_EVENT: Final = "run_completed"
_COMPLETED_TEXT: Final = b'"run_completed"'


@dataclass(frozen=True, slots=True)
class Grown:
    """The good bytes of what was given, whole lines, and how many; what is wrong behind them."""

    size: int
    lines: int
    broken: ChainBroken | None = None


class Growth(Protocol):
    """One file's chain as far as it was taken. What was not good is to be given again later."""

    def take(self, data: bytes) -> Grown:
        """Take whole lines, each with its LF."""
        ...


class Lines:
    """A file without a chain: every whole line is good."""

    def take(self, data: bytes) -> Grown:
        return Grown(len(data), data.count(b"\n"))


class JournalGrowth:
    """A run's event journal."""

    def __init__(self) -> None:
        self._head = START
        self._lines = 0
        # Whether the run says of itself that it has ended.
        self.is_completed = False

    def take(self, data: bytes) -> Grown:
        head, broken = self._after(self._head, data)
        if head is None or broken is not None:
            return self._take_singly(data)
        return self._taken(head, data)

    def _take_singly(self, data: bytes) -> Grown:
        """Find the last good row, and what is wrong behind it."""
        head, size, good, broken = self._head, 0, 0, None
        for number, line in enumerate(_lines(data), self._lines + 1):
            found, text = self._after(head, line)
            if text is not None:
                broken = self._broken(number, head, line)
                break
            size += len(line)
            if found is not None:
                head, good = found, size
        return self._taken(head, data[:good], broken)

    def _taken(self, head: ChainHead, data: bytes, broken: ChainBroken | None = None) -> Grown:
        self._head = head
        count = data.count(b"\n")
        self._lines += count
        return Grown(len(data), count, broken)

    def _after(self, head: ChainHead, data: bytes) -> tuple[ChainHead | None, str | None]:
        """Where the chain is after these lines; None where some are no rows. And what is wrong."""
        watch = self._watch if data.find(_COMPLETED_TEXT) >= 0 else None
        found = verify_journal([data], after=head, watch=watch)
        if not found.chain_consistent:
            return None, found.errors[0]
        if found.discarded_count or found.count == head.index:
            return None, None
        return ChainHead(found.count, found.head, found.profile or head.profile), None

    def _watch(self, _index: int, row: Row) -> None:
        self.is_completed = self.is_completed or row.get("event") == COMPLETED_EVENT

    def _broken(self, number: int, head: ChainHead, line: bytes) -> ChainBroken:
        found = verify_journal([line], after=head)
        hashes = ""
        if found.expected_hash is not None:
            hashes = f" (expected event_hash {found.expected_hash}, found {found.actual_hash!r})"
        return ChainBroken(
            f"line {number} does not link: {found.errors[0]}{hashes}",
            line=number,
            expected_hash=found.expected_hash,
            actual_hash=found.actual_hash,
        )


class SpineGrowth:
    """A run's lineage spine; its MACs are for whoever has the key."""

    def __init__(self) -> None:
        self._walk = SpineWalk()
        self._lines = 0

    def take(self, data: bytes) -> Grown:
        size = good = count = 0
        for number, line in enumerate(_lines(data), 1):
            size += len(line)
            try:
                self._walk.add(embedded_entry(read_object(line)))
            except (InvalidInput, RowMalformed):
                continue
            except ChainBroken as error:
                return self._taken(good, count, self._broken(number, error))
            good, count = size, number
        return self._taken(good, count)

    def _taken(self, size: int, count: int, broken: ChainBroken | None = None) -> Grown:
        self._lines += count
        return Grown(size, count, broken)

    def _broken(self, number: int, error: ChainBroken) -> ChainBroken:
        line = self._lines + number
        expected = f" (expected prev_hash {self._walk.head!r})"
        return ChainBroken(
            f"line {line} does not link: {error.message}{expected}",
            line=line,
            expected_hash=self._walk.head,
        )


class StepsGrowth:
    """An agent's step journal, and the blobs that its rows name."""

    def __init__(self, agent_id: str) -> None:
        self._where = f"agent {agent_id}"
        self._tail = Continuation(self._where)
        self._lines = 0
        # Digests in the rows that were taken, for whoever takes them out.
        self.blobs: set[str] = set()

    def take(self, data: bytes) -> Grown:
        self._tail.torn_line = None  # it waited, and is here again
        size = good = count = 0
        broken = None
        for number, line in enumerate(_lines(data), 1):
            size += len(line)
            try:
                rows = [
                    row
                    for _, row in numbered_rows([line])
                    if self._tail.admit(self._lines + number, row) and isinstance(row, dict)
                ]
            except JournalError as error:
                broken = ChainBroken(error.message, **error.metadata)
                break
            if rows:
                good, count = size, number
            for row in rows:
                self.blobs.update(_digests(row))
        self._lines += count
        return Grown(good, count, broken)


def _digests(row: Row) -> Iterator[str]:
    try:
        yield from filter(is_digest, map(as_text, blob_refs(row)))
    except RowMalformed:
        return


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines with their ends; LF alone ends one, so that sizes add up."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
