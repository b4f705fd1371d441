"""The signed run receipt: what builder and verifier share. Rules: docs/formats/run-receipt.md."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.dsse import preauth_encoding
from bernstein_formats.public_key import PublicKey

RECEIPT_TYPE: Final = "https://bernstein.run/attestations/run-receipt/v1"
PAYLOAD_TYPE: Final = "application/vnd.bernstein.run-receipt+json"
SCHEMA_VERSION: Final = "1.1.0"
SCHEMA_VERSION_WINDOW_UNSIGNED: Final = "1.0.0"
SIGNATURE_ALGORITHM: Final = "EdDSA"

RECEIPT_FILE: Final = "run-receipt.json"
COSE_FILE: Final = "run-receipt.cose"
COSE_SUFFIX: Final = ".cose"


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A model endpoint that an agent was spawned with; ordered as the binding lists them."""

    adapter: str
    model: str
    base_url: str
    profile: str

    def members(self) -> JsonValue:
        return {
            "adapter": self.adapter,
            "base_url": self.base_url,
            "model": self.model,
            "profile": self.profile,
        }


@dataclass(frozen=True, slots=True)
class AuditBinding:
    """What the signature says of an audit range; schema 1.0.0 signs the digest alone."""

    head_sha256: str
    event_count: int | None = None
    head_hmac: str | None = None
    since: str | None = None
    until: str | None = None

    def members(self) -> dict[str, JsonValue]:
        named: dict[str, JsonValue] = {
            "audit_range_event_count": self.event_count,
            "audit_range_head_hmac": self.head_hmac,
            "audit_range_head_sha256": self.head_sha256,
            "audit_range_since": self.since,
            "audit_range_until": self.until,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ReceiptSubject:
    """Every fact that the signature of a receipt covers (section 3)."""

    run_id: str
    hash_profile: Profile
    event_count: int
    journal_head: str
    spine_entry_count: int
    spine_head: str
    endpoints: tuple[Endpoint, ...] = ()
    extension_set_digest: str | None = None
    audit: AuditBinding | None = None

    def binding_bytes(self) -> bytes:
        """The canonical subject; InvalidInput where jcs-v2 has no form for a text in it."""
        members: dict[str, JsonValue] = {} if self.audit is None else self.audit.members()
        if self.endpoints:
            members["endpoints"] = [endpoint.members() for endpoint in self.endpoints]
        if self.extension_set_digest is not None:
            members["extension_set_digest"] = self.extension_set_digest
        if self.hash_profile is not Profile.PY_JSON:
            members["hash_profile"] = self.hash_profile.value
        members |= {
            "journal_event_count": self.event_count,
            "journal_head": self.journal_head,
            "run_id": self.run_id,
            "spine_entry_count": self.spine_entry_count,
            "spine_head": self.spine_head,
        }
        return canonical_bytes(members, self.hash_profile)

    def digest_members(self) -> JsonValue:
        """The receipt's `subject` block."""
        digest = sha256(self.binding_bytes()).hexdigest()
        return {"digest": {"sha256": digest}, "name": subject_name(self.run_id)}

    def preimage(self) -> bytes:
        """The bytes that the Ed25519 signature covers."""
        return preauth_encoding(PAYLOAD_TYPE, self.binding_bytes())


@dataclass(frozen=True, slots=True)
class ReceiptSignature:
    """A signature over a subject's preimage, its key, and the unsigned name of that key."""

    key_id: str
    key: PublicKey
    signature: bytes


def cose_name(receipt_name: str) -> str:
    """What a receipt's own COSE file is called: run-receipt.json's is run-receipt.cose."""
    return receipt_name.removesuffix(".json") + COSE_SUFFIX


def subject_name(run_id: str) -> str:
    return f"run-receipt-{run_id}"
