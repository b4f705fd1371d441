"""Ledger entries and seal.json: their bytes are final, and only those bytes are read."""

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.canonical import Profile, canonical_bytes, parse_json
from bernstein_formats.errors import KeyUnusable, SealMalformed, SignatureWrong
from bernstein_formats.public_key import PublicKey
from bernstein_formats.seal import (
    NO_ENTRY_HASH,
    Entry,
    EntryBody,
    EntryKind,
    ReceiptMade,
    Seal,
    check_seal,
    parse_entry,
    parse_seal,
)

PRIVATE = Ed25519PrivateKey.from_private_bytes(sha256(b"TEST ONLY seal").digest())
PUBLIC = PublicKey(PRIVATE.public_key().public_bytes_raw())
OTHER = Ed25519PrivateKey.from_private_bytes(sha256(b"TEST ONLY other").digest())


def entry(receipt: ReceiptMade | None = None, **changes: object) -> Entry:
    members: dict[str, object] = {
        "index": 0,
        "prev_entry_hash": NO_ENTRY_HASH,
        "origin": "host:/project",
        "run_id": "20260301-120000-abcdef",
        "event_count": 3,
        "head_hash": "ab" * 32,
        "sealed_at": "2026-03-01T12:00:00Z",
        "receipt": receipt,
    }
    body = EntryBody(**{**members, **changes})  # type: ignore[arg-type]  # a test's shorthand
    return Entry(body, PRIVATE.sign(body.preimage()))


def changed(data: bytes, *path: str, value: object) -> bytes:
    members = parse_json(data)
    inner = members
    for name in path[:-1]:
        inner = inner[name]  # type: ignore[index, call-overload]  # objects all the way down
    inner[path[-1]] = value  # type: ignore[index, call-overload, assignment]  # likewise
    return canonical_bytes(members, Profile.PY_JSON) + b"\n"


SEAL = Seal(entry(), PUBLIC)


def test_an_entry_reads_back_as_itself_and_its_hash_covers_its_signature():
    receipt = entry(ReceiptMade("cd" * 32, "ключ"), index=7, prev_entry_hash="01" * 32)
    assert receipt == parse_entry(receipt.line())
    assert EntryKind.RECEIPT is receipt.body.kind
    assert sha256(receipt.line()).hexdigest() == receipt.entry_hash()
    assert entry().entry_hash() != Entry(entry().body, bytes(64)).entry_hash()


def test_the_bytes_of_an_entry_never_change():
    assert entry().line().partition(b'signature_b64":"')[0] + b'signature_b64":"' == (
        b'{"event_count":3,"head_hash":"' + b"ab" * 32 + b'","index":0,"kind":"seal",'
        b'"origin":"host:/project","prev_entry_hash":"' + b"0" * 64 + b'",'
        b'"run_id":"20260301-120000-abcdef","sealed_at":"2026-03-01T12:00:00Z",'
        b'"signature_b64":"'
    )
    assert (
        entry().body.preimage()[:68]
        == b"DSSEv1 52 application/vnd.bernstein-services.ledger-entry+json 299 {"
    )


def test_a_seal_reads_back_as_itself_and_verifies():
    seal = parse_seal(SEAL.file_bytes())
    assert seal == SEAL
    check_seal(seal)
    check_seal(seal, PUBLIC)


def test_a_seal_by_another_key_than_the_expected_one_is_refused():
    with pytest.raises(SignatureWrong, match="another key"):
        check_seal(SEAL, PublicKey(OTHER.public_key().public_bytes_raw()))


@pytest.mark.parametrize(
    ("member", "value"),
    [("event_count", 2), ("head_hash", "ac" * 32), ("run_id", "other"), ("origin", "other")],
)
def test_a_changed_member_breaks_the_signature(member: str, value: object):
    seal = parse_seal(changed(SEAL.file_bytes(), "entry", member, value=value))
    with pytest.raises(SignatureWrong):
        check_seal(seal)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("event_count", 0),
        ("event_count", True),
        ("event_count", 3.0),
        ("head_hash", "AB" * 32),
        ("head_hash", "ab" * 32 + "\n"),
        ("index", -1),
        ("kind", "other"),
        ("kind", []),
        ("kind", "receipt"),
        ("origin", ""),
        ("origin", "a\nb"),
        ("origin", "\ud800"),
        ("origin", "x" * 513),
        ("prev_entry_hash", None),
        ("run_id", "../up"),
        ("sealed_at", "2026-03-01T12:00:00+00:00"),
        ("signature_b64", "AAAA"),
        ("signature_b64", "\u0661" * 88),
        ("surplus", 1),
    ],
)
def test_a_member_of_the_wrong_shape_is_named(member: str, value: object):
    with pytest.raises(SealMalformed) as caught:
        parse_seal(changed(SEAL.file_bytes(), "entry", member, value=value))
    assert caught.value.metadata["member"] in {member, "key_id"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null\n",
        b"\xff",
        b"{" * 5000,
        b"{}",
        SEAL.file_bytes()[:-1],
        SEAL.file_bytes() + b"\n",
        SEAL.file_bytes().replace(b'":', b'": ', 1),
        SEAL.file_bytes().replace(b'"entry":', b'"entry":{},"entry":', 1),
        changed(SEAL.file_bytes(), "seal_type", value="another"),
        changed(SEAL.file_bytes(), "public_key_jwk", value="text"),
        changed(SEAL.file_bytes(), "public_key_jwk", "kid", value="my name"),
        changed(SEAL.file_bytes(), "public_key_jwk", "x", value="AA"),
        changed(SEAL.file_bytes(), "public_key_jwk", "d", value="secret"),
        Seal(entry(ReceiptMade("cd" * 32, "k")), PUBLIC).file_bytes(),
    ],
)
def test_anything_but_a_seal_in_its_one_spelling_is_malformed(data: bytes):
    with pytest.raises(SealMalformed):
        parse_seal(data)


def test_a_key_that_signs_for_everybody_cannot_be_a_seal_key():
    neutral = (1).to_bytes(32, "little")
    with pytest.raises(KeyUnusable):
        PublicKey(neutral)
    jwk_x = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    with pytest.raises(SealMalformed, match="small order"):
        parse_seal(changed(SEAL.file_bytes(), "public_key_jwk", "x", value=jwk_x))
