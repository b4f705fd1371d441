"""Builds a run receipt from stored lines, in one pass and in flat memory; signing is elsewhere.

The journal service and the signer feed the same lines: one writes the chunks to a file, the other
hashes them, so that both know the receipt's SHA-256 although only one holds the key:

    builder = ReceiptBuilder("r-17", event_count=2)
    file.write(receipt_head(2))
    file.writelines(builder.event_chunks(journal_lines))
    for line in spine_lines: builder.add_spine_line(line)
    subject = builder.subject()                   # or the refusal that comes first
    signature = ...                               # over subject.preimage(), by the signer
    file.write(receipt_tail(subject, builder.spine_entries, signature))
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from bernstein_formats.canonical import Profile
from bernstein_formats.errors import (
    BernsteinError,
    ChainBroken,
    InvalidInput,
    NotFound,
    RowMalformed,
)
from bernstein_formats.journal_reader import Row, is_blank
from bernstein_formats.paths import check_run_id, journal_path
from bernstein_formats.receipt_events import EventWalk, ReceiptFinding
from bernstein_formats.receipt_lines import (
    misshapen_member,
    read_object,
    read_row,
    write_exactly,
)
from bernstein_formats.run_receipt import ReceiptSubject
from bernstein_formats.spine import SpineWalk, embedded_entry, sealed_journal_head


class _Rank(IntEnum):
    """Which refusal of a file is told, whichever line comes first: the lowest (section 4.1)."""

    PARSE = 0
    SHAPE = 1
    CHAIN = 2
    NONE = 3


_PARSE: Final = _Rank.PARSE
_NONE: Final = _Rank.NONE  # looking a member up costs as much as hashing some


class _StoredFile:
    """How far one stored file was read, and the refusal to tell: the first of the lowest rank."""

    __slots__ = ("_refusal", "line", "name", "rank", "run_id")

    def __init__(self, run_id: str, name: str) -> None:
        self.run_id = run_id
        self.name = name
        self.line = 0
        self.rank = _Rank.NONE
        self._refusal: BernsteinError | None = None

    def refuse(self, rank: _Rank, cause: BernsteinError) -> None:
        if rank >= self.rank:
            return
        kind = ChainBroken if rank is _Rank.CHAIN else RowMalformed
        facts = {"substrate": self.name, **cause.metadata}
        text = f"run {self.run_id}: {self.name} line {self.line}: {cause.message}"
        self.rank = rank
        self._refusal = kind(text, **{**facts, "run_id": self.run_id, "line": self.line})

    def tell_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal


class ReceiptBuilder:
    """Takes a run's journal lines, then its spine lines; keeps the heads, and the spine's entries.

    Lines are physical ones (blank ones too, so that a refusal can count them), line end or not.
    """

    def __init__(
        self, run_id: str, profile: Profile = Profile.PY_JSON, event_count: int | None = None
    ) -> None:
        """`profile` is the binding's; `event_count`, where known before, is checked at the end."""
        _check_run_id(run_id)
        self.spine_entries: list[bytes] = []
        self._run_id = run_id
        self._profile = profile
        self._expected_count = event_count
        self._journal_file = _StoredFile(run_id, "journal")
        self._spine_file = _StoredFile(run_id, "spine")
        self._events = EventWalk()
        self._spine = SpineWalk()
        self._sealed_head: str | None = None

    def event_chunks(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Take the next journal lines; the chunks follow one another in the receipt's bytes.

        May be called again with further lines. Once a line was refused there are no more chunks,
        but lines are still looked at: `subject` tells the refusal that comes first.
        """
        file, events, add = self._journal_file, self._events, self._events.add
        for line in lines:
            file.line += 1
            if file.rank is not _NONE:
                self._refuse_row(line, None)
                continue
            try:
                row, write, embedded = read_row(line)
                add(row, write)
            except InvalidInput:
                self._refuse_row(line, None)
                continue
            except ChainBroken as error:
                self._refuse_row(line, error)
                continue
            if events.findings:
                self._refuse_row(line, _stated_wrongly(events.findings[0]))
            yield b"," + embedded if events.count > 1 else embedded

    def _refuse_row(self, line: bytes, cause: ChainBroken | None) -> None:
        """Refuse a line for what it says, else for its shape, else for its place in the chain.

        A row that takes its place in the chain has the right shape: so that is looked at here only.
        """
        file = self._journal_file
        if file.rank is _PARSE or is_blank(line):
            return
        try:
            member = misshapen_member(read_row(line)[0])
        except InvalidInput as error:
            file.refuse(_PARSE, error)
            return
        if member is not None:
            text = f"{member} is missing or malformed; restore the row"
            file.refuse(_Rank.SHAPE, RowMalformed(text, member=member))
        elif cause is not None:
            file.refuse(_Rank.CHAIN, cause)

    def add_spine_line(self, line: bytes) -> None:
        """Take the next spine line; the journal is complete by then, and its refusal is told."""
        self._journal_file.tell_refusal()
        file = self._spine_file
        file.line += 1
        if is_blank(line):
            return
        try:
            row = read_object(line)
        except InvalidInput as error:
            file.refuse(_Rank.PARSE, error)
            return
        try:
            self._add_entry(embedded_entry(row))
        except RowMalformed as error:
            file.refuse(_Rank.SHAPE, error)
        except (ChainBroken, InvalidInput) as error:
            file.refuse(_Rank.CHAIN, error)

    def _add_entry(self, entry: Row) -> None:
        if self._spine_file.rank is not _Rank.NONE:
            return
        self._spine.add(entry)
        self.spine_entries.append(write_exactly(entry))
        self._sealed_head = sealed_journal_head(entry) or self._sealed_head

    def subject(self) -> ReceiptSubject:
        """What is to be signed, all lines being there; or the refusal that comes first."""
        self._journal_file.tell_refusal()
        self._check_count()
        self._spine_file.tell_refusal()
        self._check_seal()
        return ReceiptSubject(
            run_id=self._run_id,
            hash_profile=self._profile,
            event_count=self._events.count,
            journal_head=self._events.head,
            spine_entry_count=self._spine.count,
            spine_head=self._spine.head,
            endpoints=tuple(sorted(self._events.endpoints)),
            extension_set_digest=self._events.extension_set_digest,
        )

    def _check_count(self) -> None:
        count = self._events.count
        if count == 0:
            path = journal_path(self._run_id)
            raise NotFound(
                f"run {self._run_id}: {path} is missing or empty, so there is nothing to sign; "
                "check run id and folder",
                run_id=self._run_id, path=path,
            )  # fmt: skip
        if self._expected_count not in {None, count}:
            raise InvalidInput(
                f"run {self._run_id}: {self._expected_count} rows were announced, {count} came; "
                "build again once nobody appends",
                run_id=self._run_id, event_count=count,
            )  # fmt: skip

    def _check_seal(self) -> None:
        if self._sealed_head not in {None, self._events.head}:
            raise ChainBroken(
                f"run {self._run_id}: the newest seal in its spine commits to journal head "
                f"{self._sealed_head}, but the journal ends at {self._events.head}: rows were cut "
                "off or added after sealing; restore the sealed journal",
                run_id=self._run_id, substrate="journal", check="seal",
            )  # fmt: skip


def _check_run_id(run_id: str) -> None:
    check_run_id(run_id)
    if run_id.startswith(".."):
        raise InvalidInput(
            f"{run_id!r} names no spine: use a run id that does not begin with two dots",
            run_id=run_id,
        )


def _stated_wrongly(finding: ReceiptFinding) -> ChainBroken:
    return ChainBroken(
        f"row {finding.index} states another {finding.member} than it has; restore the row",
        substrate="journal", step=finding.index, member=finding.member, check=finding.reason,
    )  # fmt: skip
