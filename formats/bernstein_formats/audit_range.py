"""The audit range of a receipt: which events, in which order, and their chain of copies.

    selection = AuditSelection(AuditWindow.parse("2026-03-01", "2026-03-02"), "r-17")
    for row in rows_of_the_whole_log: selection.add(row)      # checked by AuditWalk before
    built = selection.built(mac)                              # mac: the key's, or given values

Rules: docs/formats/audit.md, section "The audit range of a receipt".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from bernstein_formats.audit_log import GENESIS, ORIGINAL_MEMBER, spelled_sorted
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, LimitExceeded, RowMalformed
from bernstein_formats.instants import parse_bound, parse_instant
from bernstein_formats.journal_reader import Row
from bernstein_formats.mac import MacKeys, mac_hex
from bernstein_formats.receipt_lines import write_exactly
from bernstein_formats.run_receipt import AuditBinding

EVENTS_MAX: Final = 50_000
BYTES_MAX: Final = 64 * 1024 * 1024

_COPIED: Final = ("actor", "event_type", "resource_id", "resource_type", "timestamp")

# The copy's hmac, given the text that it covers.
Mac = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class AuditWindow:
    """From `since` on, before `until`; the signed texts stay the caller's."""

    since: str
    until: str
    since_microseconds: int
    until_microseconds: int

    @classmethod
    def parse(cls, since: str, until: str) -> Self:
        """InvalidInput for a bound that is no instant, or for a window that holds none."""
        window = cls(since, until, parse_bound(since), parse_bound(until))
        if window.since_microseconds >= window.until_microseconds:
            raise InvalidInput(
                f"the audit window from {since!r} until {until!r} holds no instant; "
                "the first bound must be the earlier one",
                since=since, until=until,
            )  # fmt: skip
        return window

    def holds(self, timestamp: str) -> bool:
        return self.since_microseconds <= parse_instant(timestamp) < self.until_microseconds


def named_run(row: Mapping[str, JsonValue]) -> str | None:
    """The run that an event names: `details.run_id`, else a resource that is a run."""
    details = row.get("details")
    stated = details.get("run_id") if isinstance(details, dict) else None
    if isinstance(stated, str) and stated:
        return stated
    resource = row.get("resource_id")
    return resource if row.get("resource_type") == "run" and isinstance(resource, str) else None


@dataclass(frozen=True, slots=True)
class AuditRange:
    """A built range: the receipt's block, and what the signature says of it."""

    block: bytes
    binding: AuditBinding
    # One HMAC an event, 32 bytes each: all that only the key's owner can make.
    macs: bytes


class AuditSelection:
    """The events of a window; with `own_only` none but those that name the run."""

    def __init__(self, window: AuditWindow, run_id: str, *, own_only: bool = False) -> None:
        self._window = window
        self._run_id = run_id
        self._own_only = own_only
        self._selected: list[Row] = []
        self._size = 0
        # Events in the range that name another run, or none.
        self.foreign_count = 0

    @property
    def event_count(self) -> int:
        return len(self._selected)

    def add(self, row: Row) -> None:
        """Take the next checked row. RowMalformed for a timestamp that is no instant."""
        timestamp = str(row["timestamp"])
        try:
            if not self._window.holds(timestamp):
                return
        except InvalidInput as error:
            raise RowMalformed(f"an audit event's timestamp: {error.message}") from error
        is_own = named_run(row) == self._run_id
        if self._own_only and not is_own:
            return
        self.foreign_count += not is_own
        self._selected.append(row)
        self._size += len(spelled_sorted(row))
        if len(self._selected) > EVENTS_MAX or self._size > BYTES_MAX:
            raise LimitExceeded(
                f"the audit window holds more than {EVENTS_MAX} events or {BYTES_MAX} bytes; "
                "take a shorter one",
                limit=EVENTS_MAX,
            )

    def built(self, mac: Mac) -> AuditRange:
        """The range, its copies chained from the start by `mac`."""
        ordered = sorted(self._selected, key=lambda row: (str(row["timestamp"]), str(row["hmac"])))
        prev_hmac, events, macs = GENESIS, list[bytes](), list[bytes]()
        for row in ordered:
            copy = _copied(row, prev_hmac)
            prev_hmac = mac(prev_hmac.encode() + spelled_sorted(copy))
            events.append(write_exactly({**copy, "hmac": prev_hmac}))
            macs.append(bytes.fromhex(prev_hmac))
        return self._range(events, prev_hmac, b"".join(macs))

    def _range(self, events: list[bytes], head_hmac: str, macs: bytes) -> AuditRange:
        digest = sha256(b"".join([event + b"\n" for event in events])).hexdigest()
        window = self._window
        binding = AuditBinding(digest, len(events), head_hmac, window.since, window.until)
        rest = write_exactly(
            {
                "head_hmac": head_hmac,
                "head_sha256": digest,
                "since": window.since,
                "until": window.until,
            }
        )
        listed = b",".join(events)
        block = b'{"event_count":%d,"events":[%b],%b' % (len(events), listed, rest[1:])
        return AuditRange(block, binding, macs)


def _copied(row: Row, prev_hmac: str) -> dict[str, JsonValue]:
    details = row["details"]
    assert isinstance(details, dict)  # so says read_audit_row
    copied = {name: row[name] for name in _COPIED}
    return {
        **copied,
        "details": {**details, ORIGINAL_MEMBER: row["hmac"]},
        "prev_hmac": prev_hmac,
    }


def master_mac(keys: MacKeys) -> Mac:
    """The key's: copies are of scheme 1, master key and no tag, as in the peer."""
    return lambda text: mac_hex(keys.master, text)


def given_macs(macs: bytes) -> Mac:
    """Values that the key's owner computed, in the order of the events; InvalidInput if too few."""
    values: Iterator[bytes] = (macs[at : at + 32] for at in range(0, len(macs), 32))

    def next_mac(_: bytes) -> str:
        value = next(values, b"")
        if len(value) != 32:
            raise InvalidInput("the signer answered with fewer MACs than there are audit events")
        return value.hex()

    return next_mac
