"""The bytes of run-receipt.json around its journal rows, and of run-receipt.cose."""

import base64
from collections.abc import Sequence

from bernstein_formats.canonical import JsonValue, Profile
from bernstein_formats.cose import CoseSign1, cose_bytes, cose_preimage
from bernstein_formats.receipt_lines import write_exactly
from bernstein_formats.run_receipt import (
    PAYLOAD_TYPE,
    RECEIPT_TYPE,
    SCHEMA_VERSION,
    SIGNATURE_ALGORITHM,
    ReceiptSignature,
    ReceiptSubject,
)


def receipt_head(
    event_count: int, profile: Profile = Profile.PY_JSON, audit_block: bytes = b""
) -> bytes:
    """The receipt's bytes before the first journal row; `profile` is the binding's."""
    stated = b'"audit_range":%b,' % audit_block if audit_block else b""
    if profile is not Profile.PY_JSON:
        stated += b'"hash_profile":%b,' % write_exactly(profile.value)
    return b'{%b"journal":{"event_count":%d,"events":[' % (stated, event_count)


def receipt_tail(
    subject: ReceiptSubject, spine_entries: Sequence[bytes], signature: ReceiptSignature
) -> bytes:
    """The receipt's bytes behind the last journal row, final line feed included."""
    signing = write_exactly(
        {
            "receipt_type": RECEIPT_TYPE,
            "run_id": subject.run_id,
            "schema_version": SCHEMA_VERSION,
            "signing": _signing_members(signature),
        }
    )
    return b'],"head_hash":%b},%b,"spine":{"entries":[%b],%b,"subject":%b}\n' % (
        write_exactly(subject.journal_head),
        signing[1:-1],
        b",".join(spine_entries),
        write_exactly({"entry_count": subject.spine_entry_count, "head_hash": subject.spine_head})[
            1:
        ],
        write_exactly(subject.digest_members()),
    )


def receipt_cose_preimage(subject: ReceiptSubject, key_id: str) -> bytes:
    """What the second signature, the one in run-receipt.cose, covers."""
    return cose_preimage(PAYLOAD_TYPE, key_id.encode(), subject.binding_bytes())


def receipt_cose(subject: ReceiptSubject, key_id: str, signature: bytes) -> bytes:
    """run-receipt.cose with that signature."""
    payload = subject.binding_bytes()
    return cose_bytes(CoseSign1(PAYLOAD_TYPE, key_id.encode(), payload, signature))


def _signing_members(signature: ReceiptSignature) -> JsonValue:
    return {
        "alg": SIGNATURE_ALGORITHM,
        "key_id": signature.key_id,
        "payload_type": PAYLOAD_TYPE,
        "public_key_jwk": {**signature.key.jwk(signature.key_id)},
        "signature_b64": base64.b64encode(signature.signature).decode(),
    }
