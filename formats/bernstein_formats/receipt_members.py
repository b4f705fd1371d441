"""Which members a receipt may have, and what the unsigned ones must say.

The signature covers a digest, not the file: whatever else stands in it is free text unless somebody
compares. So each object has a closed set of members, and unsigned values have one right content.
"""

from collections.abc import Iterator
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.public_key import JWK_MEMBERS
from bernstein_formats.receipt_events import FindingReason, ReceiptFinding
from bernstein_formats.run_receipt import (
    SCHEMA_VERSION_WINDOW_UNSIGNED,
    SIGNATURE_ALGORITHM,
    subject_name,
)
from bernstein_formats.spine import ENTRY_MEMBERS, TRACE_MEMBERS

_CLOSED: Final = {
    "audit_range": frozenset(
        {"event_count", "events", "head_hmac", "head_sha256", "since", "until"}
    ),
    "journal": frozenset({"event_count", "events", "head_hash"}),
    "signing": frozenset({"alg", "key_id", "payload_type", "public_key_jwk", "signature_b64"}),
    "signing.public_key_jwk": JWK_MEMBERS,
    "spine": frozenset({"entries", "entry_count", "head_hash"}),
    "subject": frozenset({"digest", "name"}),
    "subject.digest": frozenset({"sha256"}),
}
_TOP: Final = frozenset(
    {
        *("audit_range", "hash_profile", "journal", "receipt_type", "run_id"),
        *("schema_version", "signing", "spine", "subject"),
    }
)
_SPINE_ENTRY: Final = ENTRY_MEMBERS | {*TRACE_MEMBERS}


def block(members: Row, name: str) -> Row:
    value = members.get(name)
    if not isinstance(value, dict):
        raise ReceiptMalformed(f"{name} is missing or not an object")
    return value


def items(members: Row, name: str, of: str) -> list[JsonValue]:
    value = members.get(name)
    if not isinstance(value, list):
        raise ReceiptMalformed(f"{of}.{name} is missing or not a list")
    return value


def require_objects(values: list[JsonValue], name: str) -> None:
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise ReceiptMalformed(f"{name}: number {index} is not an object")


def member_findings(receipt: Row) -> Iterator[ReceiptFinding]:
    """Everything unsigned in a receipt, its journal rows aside, that a builder does not write."""
    yield from _unknown("", receipt, _TOP)
    for path, known in _CLOSED.items():
        yield from _unknown(f"{path}.", _at(receipt, path), known)
    yield from _unknown_in_entries(receipt)
    if "audit_range" in receipt and receipt["audit_range"] is None:
        yield ReceiptFinding(FindingReason.UNSIGNED_VALUE_WRONG, None, "audit_range")
    jwk = block(block(receipt, "signing"), "public_key_jwk")
    right_values = {
        "signing.alg": SIGNATURE_ALGORITHM,
        "signing.public_key_jwk.alg": SIGNATURE_ALGORITHM if "alg" in jwk else None,
        "signing.public_key_jwk.kid": _at(receipt, "signing.key_id"),
    }
    if not isinstance(_at(receipt, "signing.key_id"), str):
        yield ReceiptFinding(FindingReason.UNSIGNED_VALUE_WRONG, None, "signing.key_id")
    for path, right in right_values.items():
        if _at(receipt, path) != right:
            yield ReceiptFinding(FindingReason.UNSIGNED_VALUE_WRONG, None, path)


def member_warnings(receipt: Row) -> Iterator[str]:
    """What no signature covers and no reader should lean on, though it need not be forged."""
    name = subject_name(str(receipt["run_id"]))
    if _at(receipt, "subject.name") != name:
        yield f"subject.name is not {name!r}; no signature covers it"
    if receipt["schema_version"] == SCHEMA_VERSION_WINDOW_UNSIGNED:
        yield "schema_version is 1.0.0, which no signature covers; builders write 1.1.0 today"
        if receipt.get("audit_range") is not None:
            yield "schema 1.0.0 leaves since, until and head_hmac of the audit range unsigned"


def _unknown(prefix: str, members: JsonValue, known: frozenset[str]) -> Iterator[ReceiptFinding]:
    if isinstance(members, dict):
        for name in sorted(members.keys() - known):
            yield ReceiptFinding(FindingReason.UNKNOWN_MEMBER, None, prefix + name)


def _unknown_in_entries(receipt: Row) -> Iterator[ReceiptFinding]:
    entries = _at(receipt, "spine.entries")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            for name in sorted(entry.keys() - _SPINE_ENTRY):
                yield ReceiptFinding(FindingReason.UNKNOWN_MEMBER, index, f"spine.entries.{name}")


def _at(receipt: Row, path: str) -> JsonValue:
    value: JsonValue = receipt
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
