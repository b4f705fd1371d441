"""Key succession chains: which keys may sign, and since when one of them is not to be trusted.

The root is pinned by whoever verifies; each later key is introduced, and each lost one revoked, by
an entry that the newest key signed. Rules: docs/formats/key-chain.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.dsse import preauth_encoding
from bernstein_formats.public_key import PublicKey

CHAIN_TYPE: Final = "https://bernstein.run/attestations/key-succession/v1"
SCHEMA_VERSION: Final = "1.0.0"
SUCCESSION: Final = "succession"
REVOCATION: Final = "revocation"

_PAYLOAD_TYPES: Final = {
    SUCCESSION: "application/vnd.bernstein.key-succession+json",
    REVOCATION: "application/vnd.bernstein.key-revocation+json",
}

Entry = Mapping[str, JsonValue]


class KeyVerdict(StrEnum):
    """What a chain says of the key that signed a receipt (section 4)."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    SIGNED_BEFORE_REVOCATION = "signed-before-revocation"
    SIGNED_AFTER_REVOCATION = "signed-after-revocation"
    REVOKED_SIGNING_TIME_UNKNOWN = "revoked-signing-time-unknown"
    UNKNOWN_KEY = "unknown-key"
    KEY_MISMATCH = "key-mismatch"

    @property
    def is_trusted(self) -> bool:
        return self in {self.ACTIVE, self.SUPERSEDED, self.SIGNED_BEFORE_REVOCATION}


class Completeness(StrEnum):
    """Whether entries may have been cut off a chain's end: the format itself cannot show it."""

    PINNED = "pinned"
    UNVERIFIABLE = "unverifiable"


@dataclass(frozen=True, slots=True)
class ChainKey:
    """One key of a chain under one name; instants are microseconds (instants.py), None if never."""

    kid: str
    key: PublicKey
    introduced_at: int | None = None
    revoked_at: int | None = None


@dataclass(frozen=True, slots=True)
class KeyChain:
    """A chain whose every entry holds; keys oldest first, the root before all others.

    `links` are the anchor and then each entry's hash: pinning one of them pins all before it.
    """

    root: Entry
    entries: tuple[Entry, ...]
    keys: tuple[ChainKey, ...]
    links: tuple[str, ...]

    @property
    def head(self) -> ChainKey:
        """The key that may sign the next entry."""
        return self.keys[-1]

    @property
    def head_hash(self) -> str:
        return self.links[-1]

    @property
    def is_closed(self) -> bool:
        """Whether no entry can follow: the only key that could sign one is revoked."""
        return self.revoked_at(self.head.key) is not None

    @property
    def is_void(self) -> bool:
        """Whether every key is revoked, so that the chain vouches for nothing signed from now."""
        return all(self.revoked_at(each.key) is not None for each in self.keys)

    def find(self, kid: str) -> ChainKey | None:
        return next((key for key in self.keys if key.kid == kid), None)

    def revoked_at(self, key: PublicKey) -> int | None:
        """When a key was revoked, under whatever name; the earliest instant counts."""
        instants = [each.revoked_at for each in self.keys if each.key == key]
        return min((at for at in instants if at is not None), default=None)

    def verdict(self, kid: str, key: PublicKey, signed_at: int | None) -> KeyVerdict:
        """What the chain says of a signature made by `key`, called `kid`, at that instant."""
        named = self.find(kid)
        if named is None:
            return KeyVerdict.UNKNOWN_KEY
        if named.key != key:
            return KeyVerdict.KEY_MISMATCH
        revoked_at = self.revoked_at(key)
        if revoked_at is None:
            return KeyVerdict.ACTIVE if named == self.head else KeyVerdict.SUPERSEDED
        if signed_at is None:
            return KeyVerdict.REVOKED_SIGNING_TIME_UNKNOWN
        if signed_at < revoked_at:
            return KeyVerdict.SIGNED_BEFORE_REVOCATION
        return KeyVerdict.SIGNED_AFTER_REVOCATION


def anchor(root: JsonValue) -> str:
    """What the first entry links to: the whole root block (section 1.2)."""
    return _digest({"chain_type": CHAIN_TYPE, "root": root, "schema_version": SCHEMA_VERSION})


def entry_hash(entry: Entry) -> str:
    """What the entry behind this one links to: its signature is part of it."""
    return _digest({**entry})


def entry_preimage(entry: Entry) -> bytes:
    """The bytes that an entry's signature covers, whether it is there yet or not (section 1.3)."""
    body = {name: value for name, value in entry.items() if name != "signature_b64"}
    payload_type = _PAYLOAD_TYPES[SUCCESSION if entry.get("kind") == SUCCESSION else REVOCATION]
    return preauth_encoding(payload_type, canonical_bytes(body, Profile.PY_JSON))


def _digest(value: JsonValue) -> str:
    return sha256(canonical_bytes(value, Profile.PY_JSON)).hexdigest()
