"""The keys that authenticate spine and audit rows: one master key, one key a store derived from it.

Rules: docs/formats/spine.md and docs/formats/audit.md, section "Keys". Only the signer has a key.
"""

import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from bernstein_formats.errors import KeyUnusable

HASH_SIZE: Final = 32


class Domain(StrEnum):
    """A store that has its own key and its own tag."""

    LINEAGE = "lineage"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class MacKeys:
    """The master key and what is derived from it; never printed."""

    master: bytes = field(repr=False)
    lineage: bytes = field(repr=False)
    audit: bytes = field(repr=False)


def mac_keys(content: bytes) -> MacKeys:
    """The keys in a key file's content: what stands there, white space around it aside."""
    master = content.strip()
    if not master:
        # An empty key authenticates nothing: everybody has it.
        raise KeyUnusable("the audit key is empty; restore it from its copy")
    return MacKeys(master, derived_key(master, Domain.LINEAGE), derived_key(master, Domain.AUDIT))


def derived_key(master: bytes, domain: Domain) -> bytes:
    """HKDF-SHA256 without salt (RFC 5869), `info` being the store's name; 32 bytes."""
    extracted = hmac.digest(bytes(HASH_SIZE), master, sha256)
    return hmac.digest(extracted, domain.value.encode() + b"\x01", sha256)


def domain_tag(domain: Domain) -> bytes:
    """What stands before the hashed text of scheme 2, with nothing between."""
    return b"bernstein:%b:v2" % domain.value.encode()


def mac_hex(key: bytes, text: bytes) -> str:
    """HMAC-SHA256, as the 64 characters that a row carries."""
    return hmac.digest(key, text, sha256).hex()


def same_mac(stated: object, computed: str) -> bool:
    """Compare without telling, by the time it takes, how much of a guess was right."""
    return isinstance(stated, str) and hmac.compare_digest(
        stated.encode("utf-8", "replace"), computed.encode()
    )
