"""The audit range of a receipt, as far as it can be checked without the audit key."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ChainBroken, InvalidInput, ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.receipt_lines import write_exactly
from bernstein_formats.run_receipt import SCHEMA_VERSION, AuditBinding

# What the first event follows; as `audit_log` has it, which few receipts need.
NO_EVENT_HMAC: Final = "0" * 64


def audit_binding(block: JsonValue, schema_version: str) -> AuditBinding | None:
    """What the signature must say of the range; None without one. Raises where it is not itself."""
    if block is None:
        return None
    events = block.get("events") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(events, list):
        raise ReceiptMalformed("audit_range.events is missing or not a list")
    head = sha256(b"".join([write_exactly(event) + b"\n" for event in events])).hexdigest()
    if block.get("head_sha256") != head:
        raise ChainBroken(f"audit_range.head_sha256 is not that of its events, {head}")
    count = block.get("event_count")
    if type(count) is not int or count != len(events):
        raise ChainBroken(f"audit_range.event_count is not {len(events)}, the number of events")
    last_hmac = _linked(events)
    if schema_version != SCHEMA_VERSION:
        return AuditBinding(head)
    head_hmac, since, until = (_text(block, name) for name in ("head_hmac", "since", "until"))
    if head_hmac not in {None, last_hmac}:
        raise ChainBroken("audit_range.head_hmac is not the hmac of its last event")
    return AuditBinding(head, count, head_hmac, since, until)


def _linked(events: list[JsonValue]) -> str:
    """Follow the copies by their links, without the key; gives the last one's hmac."""
    head = NO_EVENT_HMAC
    for number, event in enumerate(events):
        if not isinstance(event, dict) or not isinstance(event.get("hmac"), str):
            raise ChainBroken(f"audit_range.events: number {number} is no event with an hmac")
        if event.get("prev_hmac") != head:
            raise ChainBroken(
                f"audit_range.events: number {number} does not follow the one before it"
            )
        head = str(event["hmac"])
    return head


def audit_warnings(block: JsonValue) -> Iterator[str]:
    """Events outside of the stated window: the peer compares bounds by their letters."""
    from bernstein_formats.audit_range import AuditWindow  # noqa: PLC0415 - few have a range

    events = block.get("events") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(events, list):
        return
    try:
        window = AuditWindow.parse(str(block.get("since")), str(block.get("until")))
        outside = sum(not window.holds(_timestamp(event)) for event in events)
    except InvalidInput as error:
        yield f"the audit range's window or a timestamp in it is no instant: {error.message}"
        return
    if outside:
        yield f"{outside} audit events lie outside of the receipt's own window"


def _timestamp(event: JsonValue) -> str:
    return str(event.get("timestamp")) if isinstance(event, dict) else ""


def _text(block: Row, name: str) -> str | None:
    value = block.get(name)
    if value is not None and not isinstance(value, str):
        raise ReceiptMalformed(f"audit_range.{name} is not text")
    return value
