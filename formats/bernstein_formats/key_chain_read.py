"""Reads a key chain and believes nothing of it that its root key, pinned, does not vouch for.

The order of checks is the peer's (docs/formats/key-chain.md, section 3). Each refusal is a
ChainBroken whose metadata hold `check`, a word for programs, and `entry`, counted from 1.
"""

from dataclasses import replace
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json_unique
from bernstein_formats.errors import ChainBroken, InvalidInput, KeyUnusable
from bernstein_formats.instants import parse_instant
from bernstein_formats.journal_reader import Row
from bernstein_formats.key_chain import (
    CHAIN_TYPE,
    REVOCATION,
    SCHEMA_VERSION,
    SUCCESSION,
    ChainKey,
    Entry,
    KeyChain,
    anchor,
    entry_hash,
    entry_preimage,
)
from bernstein_formats.public_key import PublicKey, decode_base64, parse_jwk, parse_public_pem
from bernstein_formats.receipt_lines import refuse_non_finite

_TOP: Final = frozenset({"chain_type", "entries", "root", "schema_version"})
_ROOT: Final = frozenset({"kid", "public_key_jwk"})


def read_key_chain(data: bytes, pin: PublicKey | bytes | None) -> KeyChain:
    """The chain in a file, once all of it holds; ChainBroken says which check does not.

    `pin` is the root's key, or its PEM. None takes the file's own root, which proves nothing yet.
    """
    document = _document(data)
    root_key = _root_key(document)
    if pin is not None and _pinned(pin) != root_key.key:
        raise refused("root-pin-mismatch", "the chain's root is another key than the pinned one")
    entries = document.get("entries")
    if not isinstance(entries, list):
        raise refused("chain-entries-missing", "entries is missing or not a list")
    walk = _Walk(document["root"], root_key)
    for entry in entries:
        walk.add(entry)
    _require_closed(document)
    return walk.chain()


def refused(check: str, text: str, entry: int | None = None) -> ChainBroken:
    """A refusal of the chain, or of what was asked of it."""
    where = "key chain" if entry is None else f"key chain entry {entry}"
    return ChainBroken(f"{where}: {text}", substrate="key-chain", check=check, entry=entry)


def _document(data: bytes) -> Row:
    try:
        value = parse_json_unique(data)
        refuse_non_finite([value])
    except InvalidInput as error:
        text = f"not one JSON object of unique members: {error.message}"
        raise refused("chain-not-json", text) from error
    if not isinstance(value, dict):
        raise refused("chain-not-object", "not a JSON object")
    if value.get("chain_type") != CHAIN_TYPE:
        raise refused("chain-type", f"chain_type is not {CHAIN_TYPE}")
    return value


def _root_key(document: Row) -> ChainKey:
    root = document.get("root")
    jwk = root.get("public_key_jwk") if isinstance(root, dict) else None
    if not isinstance(root, dict) or not isinstance(jwk, dict):
        raise refused("chain-root-missing", "root.public_key_jwk is missing or not an object")
    kid = jwk.get("kid")
    if not isinstance(kid, str) or not kid:
        raise refused("chain-root-no-kid", "the root's JWK has no kid")
    if root.get("kid") != kid:
        raise refused("chain-root-kid", "root.kid is not the kid of the root's JWK")
    return ChainKey(kid, _jwk_key(jwk, None))


def _jwk_key(jwk: Row, entry: int | None) -> PublicKey:
    try:
        return parse_jwk(jwk)
    except KeyUnusable as error:
        raise refused("chain-jwk-unusable", error.message, entry) from error


def _pinned(pin: PublicKey | bytes) -> PublicKey:
    try:
        return pin if isinstance(pin, PublicKey) else parse_public_pem(pin)
    except KeyUnusable as error:
        raise refused("root-pin-unusable", f"the pin is unusable: {error.message}") from error


def _require_closed(document: Row) -> None:
    """Nothing covers other members; and a chain without entries not even its root's own."""
    if document.get("schema_version") != SCHEMA_VERSION:
        raise refused("chain-schema-version", f"schema_version is not {SCHEMA_VERSION}")
    root = document["root"]
    unknown = document.keys() - _TOP
    if isinstance(root, dict):
        unknown |= root.keys() - _ROOT
    if unknown:
        raise refused("chain-member", f"no signature covers {', '.join(sorted(unknown))}")


class _Walk:
    """Follows the entries; what holds of the keys so far stays here."""

    def __init__(self, root: JsonValue, root_key: ChainKey) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._entries: list[Entry] = []
        self._keys = [root_key]
        self._links = [anchor(root)]

    def chain(self) -> KeyChain:
        return KeyChain(self._root, tuple(self._entries), tuple(self._keys), tuple(self._links))

    @property
    def _number(self) -> int:
        return len(self._links)

    def add(self, entry: JsonValue) -> None:
        """Take the next entry, or raise."""
        if not isinstance(entry, dict):
            raise self._refused("chain-entry-not-object", "not an object")
        if type(entry.get("seq")) is not int or entry["seq"] != self._number:
            raise self._refused("chain-seq", "its seq is not its position")
        if entry.get("prev_entry_hash") != self._links[-1]:
            raise self._refused("chain-link", "it does not link to what is before it")
        self._check_signature(entry)
        kind = entry.get("kind")
        if kind == SUCCESSION:
            self._introduce(entry)
        elif kind == REVOCATION:
            self._revoke(entry)
        else:
            raise self._refused("chain-kind", "its kind is neither succession nor revocation")
        self._entries.append(entry)
        self._links.append(entry_hash(entry))

    def _check_signature(self, entry: Row) -> None:
        text, head = entry.get("signature_b64"), self._keys[-1]
        if not isinstance(text, str):
            raise self._refused("chain-signature-missing", "it has no signature_b64")
        try:
            signature = decode_base64(text)
        except InvalidInput as error:
            raise self._refused(
                "signature-encoding", f"signature_b64 is {error.message}"
            ) from error
        if not head.key.verifies(signature, entry_preimage(entry)):
            raise self._refused("chain-signature-invalid", f"not signed by the head {head.kid!r}")
        if self.chain().revoked_at(head.key) is not None:
            raise self._refused("chain-signer-revoked", f"its signer {head.kid!r} was revoked")

    def _introduce(self, entry: Row) -> None:
        kid, jwk, head = entry.get("kid"), entry.get("public_key_jwk"), self._keys[-1]
        if entry.get("prev_kid") != head.kid:
            raise self._refused("chain-prev-kid", f"prev_kid is not the head {head.kid!r}")
        if not isinstance(kid, str) or not kid:
            raise self._refused("chain-kid-missing", "kid is missing, empty or not text")
        if any(key.kid == kid for key in self._keys):
            raise self._refused("chain-kid-reused", f"the kid {kid!r} is in the chain already")
        if not isinstance(jwk, dict):
            raise self._refused("chain-jwk-missing", "public_key_jwk is missing or not an object")
        key = _jwk_key(jwk, self._number)
        if jwk.get("kid") != kid:
            raise self._refused("chain-jwk-kid", "its kid is not the kid of its JWK")
        issued_at = self._instant(entry, "issued_at")
        if head.introduced_at is not None and issued_at < head.introduced_at:
            raise self._refused("chain-order", "issued_at is earlier than the head's own")
        self._keys.append(ChainKey(kid, key, introduced_at=issued_at))

    def _revoke(self, entry: Row) -> None:
        kid = entry.get("kid")
        at, key = next((each for each in enumerate(self._keys) if each[1].kid == kid), (0, None))
        if key is None:
            raise self._refused("chain-revoke-unknown", f"the kid {kid!r:.80} is not in the chain")
        if key.revoked_at is not None:
            raise self._refused("chain-revoke-twice", f"{key.kid!r} is revoked already")
        revoked_at = self._instant(entry, "revoked_at")
        if key.introduced_at is not None and revoked_at < key.introduced_at:
            raise self._refused("chain-order", f"revoked_at is earlier than {key.kid!r} itself")
        self._keys[at] = replace(key, revoked_at=revoked_at)

    def _instant(self, entry: Row, name: str) -> int:
        try:
            return parse_instant(entry.get(name))
        except InvalidInput as error:
            raise self._refused("chain-instant", f"{name}: {error.message}") from error

    def _refused(self, check: str, text: str) -> ChainBroken:
        return refused(check, text, self._number)
