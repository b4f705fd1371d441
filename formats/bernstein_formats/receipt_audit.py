"""The audit range of a receipt, as far as it can be checked without the audit key."""

from hashlib import sha256

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ChainBroken, ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.receipt_lines import write_exactly
from bernstein_formats.run_receipt import SCHEMA_VERSION, AuditBinding


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
    if schema_version != SCHEMA_VERSION:
        return AuditBinding(head)
    window = (_text(block, name) for name in ("head_hmac", "since", "until"))
    return AuditBinding(head, count, *window)


def _text(block: Row, name: str) -> str | None:
    value = block.get(name)
    if value is not None and not isinstance(value, str):
        raise ReceiptMalformed(f"audit_range.{name} is not text")
    return value
