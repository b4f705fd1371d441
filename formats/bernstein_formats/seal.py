"""The signer's ledger entries and `seal.json`: what was sealed or signed, in bytes that are final.

An entry is signed and names the hash of the entry before it; its canonical bytes can be the leaves
of a Merkle log. `seal.json` beside a run holds one entry and the key, so that anybody can decide
offline whether these rows are the sealed ones.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json_unique
from bernstein_formats.dsse import preauth_encoding
from bernstein_formats.errors import InvalidInput, KeyUnusable, SealMalformed, SignatureWrong
from bernstein_formats.journal_verdict import JournalSeal
from bernstein_formats.paths import check_run_id
from bernstein_formats.public_key import SIGNATURE_SIZE, PublicKey, decode_base64, parse_jwk

ENTRY_PAYLOAD_TYPE: Final = "application/vnd.bernstein-services.ledger-entry+json"
SEAL_TYPE: Final = "bernstein-services/run-seal/v1"
NO_ENTRY_HASH: Final = "0" * 64
ORIGIN_CHARACTERS_MAX: Final = 512

_HEX_64: Final = re.compile(r"[0-9a-f]{64}")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_BODY_MEMBERS: Final = frozenset(
    {
        "event_count", "head_hash", "index", "kind", "origin",
        "prev_entry_hash", "run_id", "sealed_at",
    }
)  # fmt: skip
_RECEIPT_MEMBERS: Final = frozenset({"key_id", "receipt_sha256"})


class EntryKind(StrEnum):
    """What the signer did."""

    SEAL = "seal"
    RECEIPT = "receipt"


@dataclass(frozen=True, slots=True)
class ReceiptMade:
    """The receipt that an entry tells of."""

    receipt_sha256: str
    key_id: str


@dataclass(frozen=True, slots=True)
class EntryBody:
    """What an entry says: its place in the ledger, the run, and the rows up to the head."""

    index: int
    prev_entry_hash: str
    origin: str
    run_id: str
    event_count: int
    head_hash: str
    sealed_at: str
    receipt: ReceiptMade | None = None

    @property
    def kind(self) -> EntryKind:
        return EntryKind.SEAL if self.receipt is None else EntryKind.RECEIPT

    @property
    def journal_seal(self) -> JournalSeal:
        """What the run's journal is held against."""
        return JournalSeal(self.head_hash, self.event_count)

    def members(self) -> dict[str, JsonValue]:
        """Every member but the signature."""
        named: dict[str, JsonValue] = {
            "event_count": self.event_count,
            "head_hash": self.head_hash,
            "index": self.index,
            "kind": self.kind.value,
            "origin": self.origin,
            "prev_entry_hash": self.prev_entry_hash,
            "run_id": self.run_id,
            "sealed_at": self.sealed_at,
        }
        if self.receipt is not None:
            named |= {"key_id": self.receipt.key_id, "receipt_sha256": self.receipt.receipt_sha256}
        return named

    def preimage(self) -> bytes:
        """The bytes that the Ed25519 signature covers."""
        canonical = canonical_bytes(self.members(), Profile.PY_JSON)
        return preauth_encoding(ENTRY_PAYLOAD_TYPE, canonical)


@dataclass(frozen=True, slots=True)
class Entry:
    """A signed entry."""

    body: EntryBody
    signature: bytes

    def members(self) -> dict[str, JsonValue]:
        text = base64.b64encode(self.signature).decode()
        return {**self.body.members(), "signature_b64": text}

    def line(self) -> bytes:
        """The entry's final bytes, without a line feed."""
        return canonical_bytes(self.members(), Profile.PY_JSON)

    def entry_hash(self) -> str:
        """What the next entry names, signature included."""
        return sha256(self.line()).hexdigest()

    def check_signature(self, key: PublicKey) -> None:
        """Raise SignatureWrong unless `key` signed the entry."""
        if not key.verifies(self.signature, self.body.preimage()):
            raise SignatureWrong(
                f"entry {self.body.index} of the signer's ledger is not signed by its key",
                index=self.body.index,
            )


@dataclass(frozen=True, slots=True)
class Seal:
    """Content of `seal.json`."""

    entry: Entry
    public_key: PublicKey

    def file_bytes(self) -> bytes:
        members: dict[str, JsonValue] = {
            "entry": self.entry.members(),
            "public_key_jwk": dict(self.public_key.jwk(key_thumbprint(self.public_key))),
            "seal_type": SEAL_TYPE,
        }
        return canonical_bytes(members, Profile.PY_JSON) + b"\n"


def key_thumbprint(key: PublicKey) -> str:
    """The name of a seal key: derived from the key, so that it can't name another (RFC 7638)."""
    jwk = key.jwk("")
    required: JsonValue = {name: jwk[name] for name in ("crv", "kty", "x")}
    digest = sha256(canonical_bytes(required, Profile.JCS)).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def parse_entry(line: bytes) -> Entry:
    """Read one ledger line; SealMalformed for anything but an entry's own final bytes."""
    entry = _entry_of(_object_in(line, "the ledger entry"))
    if entry.line() != line:
        raise SealMalformed("the ledger entry is not in canonical JSON: its bytes were changed")
    return entry


def parse_seal(data: bytes) -> Seal:
    """Read `seal.json`, or raise SealMalformed. Signature: `check_seal`."""
    members = _object_in(data, "the seal")
    _closed(members, frozenset({"entry", "public_key_jwk", "seal_type"}), "the seal")
    if members["seal_type"] != SEAL_TYPE:
        raise SealMalformed(f"the seal's seal_type is not {SEAL_TYPE}", member="seal_type")
    inner, jwk = members["entry"], members["public_key_jwk"]
    if not isinstance(inner, dict) or not isinstance(jwk, dict):
        raise SealMalformed("the seal's entry and public_key_jwk must be objects")
    try:
        seal = Seal(_entry_of(inner), parse_jwk(jwk))
    except KeyUnusable as error:
        raise SealMalformed(f"the seal's public_key_jwk: {error.message}") from error
    if seal.entry.body.kind is not EntryKind.SEAL:
        raise SealMalformed("the seal's entry is of another kind", member="kind")
    if seal.file_bytes() != data:
        raise SealMalformed("the seal is not in canonical JSON with its one line feed")
    return seal


def check_seal(seal: Seal, public_key: PublicKey | None = None) -> None:
    """Raise SignatureWrong unless its key, which is `public_key` if one is given, signed it."""
    if public_key is not None and public_key != seal.public_key:
        raise SignatureWrong("the seal was made with another key than the one given")
    seal.entry.check_signature(seal.public_key)


def _object_in(data: bytes, what: str) -> dict[str, JsonValue]:
    try:
        value = parse_json_unique(data)
    except InvalidInput as error:
        raise SealMalformed(f"{what} cannot be read: {error.message}") from error
    if not isinstance(value, dict):
        raise SealMalformed(f"{what} is not a JSON object")
    return value


def _closed(members: Mapping[str, JsonValue], wanted: frozenset[str], what: str) -> None:
    for name in sorted(wanted ^ members.keys()):
        state = "lacks the member" if name in wanted else "has the unknown member"
        raise SealMalformed(f"{what} {state} {name!r}", member=name)


def _entry_of(members: Mapping[str, JsonValue]) -> Entry:
    is_receipt = members.get("kind") == EntryKind.RECEIPT
    extra = _RECEIPT_MEMBERS if is_receipt else frozenset()
    _closed(members, _BODY_MEMBERS | extra | {"signature_b64"}, "the ledger entry")
    for name, value in members.items():
        if not _RULES[name](value):
            raise SealMalformed(f"the ledger entry's {name} is not usable", member=name)
    count, index = members["event_count"], members["index"]
    assert type(count) is int  # so say the rules
    assert type(index) is int
    text = {name: value for name, value in members.items() if isinstance(value, str)}
    body = EntryBody(
        index=index,
        prev_entry_hash=text["prev_entry_hash"],
        origin=text["origin"],
        run_id=text["run_id"],
        event_count=count,
        head_hash=text["head_hash"],
        sealed_at=text["sealed_at"],
        receipt=ReceiptMade(text["receipt_sha256"], text["key_id"]) if is_receipt else None,
    )
    return Entry(body, decode_base64(text["signature_b64"]))


def check_origin(origin: str) -> None:
    """Refuse, as InvalidInput, a text that cannot name host and project."""
    if not _is_origin(origin):
        raise InvalidInput(
            f"an origin is 1 to {ORIGIN_CHARACTERS_MAX} printable characters", origin=repr(origin)
        )


def _is_origin(value: JsonValue) -> bool:
    return (
        isinstance(value, str) and 0 < len(value) <= ORIGIN_CHARACTERS_MAX and value.isprintable()
    )


def _is_run_id(value: JsonValue) -> bool:
    try:
        check_run_id(value if isinstance(value, str) else "")
    except InvalidInput:
        return False
    return True


def _is_signature(value: JsonValue) -> bool:
    try:
        return isinstance(value, str) and len(decode_base64(value)) == SIGNATURE_SIZE
    except InvalidInput:
        return False


def _is_hash(value: JsonValue) -> bool:
    return isinstance(value, str) and _HEX_64.fullmatch(value) is not None


def _is_instant(value: JsonValue) -> bool:
    return isinstance(value, str) and _INSTANT.fullmatch(value) is not None


_RULES: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "event_count": lambda value: type(value) is int and value > 0,
    "head_hash": _is_hash,
    "index": lambda value: type(value) is int and value >= 0,
    "key_id": lambda value: isinstance(value, str) and value != "",
    "kind": lambda value: value in [kind.value for kind in EntryKind],
    "origin": _is_origin,
    "prev_entry_hash": _is_hash,
    "receipt_sha256": _is_hash,
    "run_id": _is_run_id,
    "sealed_at": _is_instant,
    "signature_b64": _is_signature,
}
