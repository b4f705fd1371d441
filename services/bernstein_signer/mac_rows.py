"""Rows that carry a MAC: made from fields behind a row that is authentic, verified, and copied.

No MAC that was computed here is told, except as part of the row or the copy that it belongs to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bernstein_formats.audit_events import JournalSealEvent, journal_seal_of
from bernstein_formats.audit_log import (
    GENESIS,
    AuditFields,
    AuditWalk,
    event_mac,
    next_audit_line,
    read_audit_row,
    segment_lines,
)
from bernstein_formats.audit_range import AuditRange, AuditSelection, AuditWindow, master_mac
from bernstein_formats.errors import Broken, ChainBroken, InvalidInput, RowMalformed
from bernstein_formats.mac import MacKeys, same_mac
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.spine import (
    SpineFields,
    embedded_entry,
    entry_hash,
    next_spine_row,
    row_mac,
    spine_head_bytes,
    spine_row_line,
)

_FOREIGN = "it was changed, or written under another key; nothing is appended behind it"


@dataclass(frozen=True, slots=True)
class SpineRow:
    """A made row, and what `spine.head` says once it is stored."""

    line: bytes
    head_json: bytes


def make_spine_row(
    previous_line: bytes, entry_count: int, fields: SpineFields, keys: MacKeys
) -> SpineRow:
    """The row behind `previous_line`; ChainBroken, RowMalformed where that one is not authentic."""
    prev_hash = _authentic_entry_hash(previous_line, keys) if previous_line else ""
    row = next_spine_row(fields, prev_hash, keys)
    head = spine_head_bytes(entry_count + 1, str(row["entry_hash"]), keys)
    return SpineRow(spine_row_line(row), head)


def _authentic_entry_hash(line: bytes, keys: MacKeys) -> str:
    try:
        row = read_object(line)
        computed = entry_hash(embedded_entry(row))
    except InvalidInput as error:
        raise RowMalformed(f"the spine's last row: {error.message}", substrate="spine") from error
    authentic = row["entry_hash"] == computed and same_mac(row["hmac"], row_mac(row, keys))
    if not authentic:
        raise ChainBroken(f"the spine's last row is not ours: {_FOREIGN}", substrate="spine")
    return computed


def make_audit_row(
    previous_line: bytes, timestamp: str, fields: AuditFields, keys: MacKeys
) -> bytes:
    """The row behind `previous_line`; ChainBroken, RowMalformed where that one is not authentic."""
    prev_hmac = GENESIS
    if previous_line:
        row = read_audit_row(previous_line)
        prev_hmac = event_mac(row, keys)
        if not same_mac(row["hmac"], prev_hmac):
            raise ChainBroken(f"the audit log's last event: {_FOREIGN}", substrate="audit")
    return next_audit_line(fields, timestamp, prev_hmac, keys)


@dataclass(slots=True)
class AuditVerdict:
    """How far the log verifies, what ended that, and the run's journal seals up to there."""

    event_count: int = 0
    error: str = ""
    seals: list[JournalSealEvent] = field(default_factory=list)


class AuditLogRows:
    """The log as it arrives: parts of segments, one after the other, verified with the key."""

    def __init__(self, keys: MacKeys, selection: AuditSelection | None = None) -> None:
        self._keys = keys
        self._walk = AuditWalk(keys)
        self._selection = selection

    def take_segment(self, name: str, chunks: Iterable[bytes], run_id: str = "") -> AuditVerdict:
        """Take a whole segment; raises for its first wrong line. Tells the run's seals in it."""
        self._walk.begin_segment(name)
        verdict = AuditVerdict()
        for line in segment_lines(chunks):
            row = self._walk.add(line)
            if row is None:
                continue
            if self._selection is not None:
                self._selection.add(row)
            seal = journal_seal_of(row, run_id) if run_id else None
            if seal is not None:
                verdict.seals.append(seal)
        verdict.event_count = self._walk.count
        return verdict

    def audit_range(self) -> AuditRange:
        """The receipt's range, all segments being there."""
        assert self._selection is not None
        return self._selection.built(master_mac(self._keys))


def verified_log(
    segments: Iterable[tuple[str, Iterable[bytes]]], run_id: str, keys: MacKeys
) -> AuditVerdict:
    """The whole log; a broken one is an answer."""
    rows, told = AuditLogRows(keys), AuditVerdict()
    for name, chunks in segments:
        try:
            found = rows.take_segment(name, chunks, run_id)
        except Broken as error:
            told.error = error.message
            break
        told.event_count = found.event_count
        told.seals += found.seals
    return told


def range_rows(
    since: str, until: str, run_id: str, keys: MacKeys, *, own_only: bool
) -> AuditLogRows:
    """What takes the log of which a receipt holds a window."""
    window = AuditWindow.parse(since, until)
    return AuditLogRows(keys, AuditSelection(window, run_id, own_only=own_only))
