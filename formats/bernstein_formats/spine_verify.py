"""Verifies a lineage spine with the key: chain, and the MAC of every row.

Without the key (`keys` is None) the chain alone is walked, and the verdict says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bernstein_formats.errors import ChainBroken, InvalidInput
from bernstein_formats.journal_reader import LineBlocks, Row, is_blank
from bernstein_formats.mac import MacKeys, same_mac
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.spine import (
    ENTRY_MEMBERS,
    TRACE_MEMBERS,
    SpineWalk,
    row_mac,
    sealed_journal_head,
)

_ROW_MEMBERS: Final = ENTRY_MEMBERS | {*TRACE_MEMBERS, "hmac"}
ERRORS_LISTED_MAX: Final = 20


class SpineStatus(StrEnum):
    """The four answers of the peer."""

    OK = "ok"
    NO_ENTRIES = "no_entries"
    SEAL_ONLY = "seal_only"
    TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class SpineVerdict:
    """What a spine is worth; `errors` name physical lines from 1, at most ERRORS_LISTED_MAX."""

    status: SpineStatus
    count: int
    head_hash: str
    # The journal head that the newest seal commits to; None without a seal.
    sealed_head: str | None
    errors: tuple[str, ...]
    macs_checked: bool


def verify_spine(chunks: Iterable[bytes], keys: MacKeys | None) -> SpineVerdict:
    """Read all of it; never raises for what it holds."""
    walk = _Walk(keys)
    number = 0
    for block in LineBlocks(chunks):
        for line in block:
            number += 1
            if not is_blank(line):
                walk.add(line, number)
    return walk.verdict()


class _Walk:
    """The entries so far; after the first broken one the chain is not followed any further."""

    def __init__(self, keys: MacKeys | None) -> None:
        self._keys = keys
        self._chain = SpineWalk()
        self._count = 0
        self._seal_count = 0
        self._sealed_head: str | None = None
        self._errors: list[str] = []
        self._broken = False

    def add(self, line: bytes, number: int) -> None:
        self._count += 1
        try:
            row = read_object(line)
        except InvalidInput as error:
            self._wrong(number, error.message)
            self._broken = True
            return
        self._check(row, number)

    def _check(self, row: Row, number: int) -> None:
        unknown = sorted(row.keys() - _ROW_MEMBERS)
        if unknown:
            self._wrong(number, f"has the unknown member {unknown[0]!r}")
        if not self._broken:
            try:
                self._chain.add(row)
            except (ChainBroken, InvalidInput) as error:
                self._wrong(number, error.message)
                self._broken = True
                return
            self._note_seal(row)
        if not unknown and not self._is_authentic(row):
            self._wrong(number, "has another hmac than its key gives")

    def _note_seal(self, row: Row) -> None:
        head = sealed_journal_head(row)
        if head is not None:
            self._seal_count += 1
            self._sealed_head = head

    def _is_authentic(self, row: Row) -> bool:
        if self._keys is None:
            return isinstance(row.get("hmac"), str)
        try:
            return same_mac(row.get("hmac"), row_mac(row, self._keys))
        except (InvalidInput, KeyError):
            return False  # a row of another shape, behind a broken one

    def _wrong(self, number: int, what: str) -> None:
        if len(self._errors) < ERRORS_LISTED_MAX:
            self._errors.append(f"spine line {number}: {what}")

    def verdict(self) -> SpineVerdict:
        return SpineVerdict(
            status=self._status(),
            count=self._count,
            head_hash=self._chain.head,
            sealed_head=self._sealed_head,
            errors=tuple(self._errors),
            macs_checked=self._keys is not None,
        )

    def _status(self) -> SpineStatus:
        if self._errors:
            return SpineStatus.TAMPERED
        if not self._count:
            return SpineStatus.NO_ENTRIES
        return SpineStatus.SEAL_ONLY if self._seal_count == self._count else SpineStatus.OK
