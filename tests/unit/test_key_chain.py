"""Key chains: what is refused when one is made, and when one is read."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.errors import BernsteinError, ChainBroken, Conflict, InvalidInput
from bernstein_formats.instants import parse_instant
from bernstein_formats.key_chain import KeyVerdict, entry_preimage
from bernstein_formats.key_chain_build import extended, new_key_chain, revocation, succession
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import PublicKey
from bernstein_verify.key_chain_view import chain_notes

PRIVATE = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(4)]
KEYS = [PublicKey(each.public_key().public_bytes_raw()) for each in PRIVATE]
MARCH, APRIL, MAY = (f"2026-0{month}-01T00:00:00Z" for month in (3, 4, 5))


def rotated(data: bytes, signer: int, new: int, at: str) -> bytes:
    chain = read_key_chain(data, KEYS[0])
    entry = succession(chain, KEYS[new], f"k{new}", at)
    return extended(chain, entry, PRIVATE[signer].sign(entry_preimage(entry)))


def revoked(data: bytes, signer: int, kid: str, at: str) -> bytes:
    chain = read_key_chain(data, KEYS[0])
    entry = revocation(chain, kid, at, "lost")
    return extended(chain, entry, PRIVATE[signer].sign(entry_preimage(entry)))


ROOT = new_key_chain(KEYS[0], "k0")
TWO = rotated(ROOT, 0, 1, MARCH)


def test_a_chain_says_which_key_is_head_superseded_or_revoked():
    chain = read_key_chain(revoked(TWO, 1, "k0", APRIL), KEYS[0])
    assert chain.head.kid == "k1"
    assert chain.verdict("k1", KEYS[1], None) is KeyVerdict.ACTIVE
    assert chain.verdict("k0", KEYS[0], None) is KeyVerdict.REVOKED_SIGNING_TIME_UNKNOWN
    assert chain.verdict("k0", KEYS[0], parse_instant(MARCH)) is KeyVerdict.SIGNED_BEFORE_REVOCATION
    assert chain.verdict("k0", KEYS[0], parse_instant(APRIL)) is KeyVerdict.SIGNED_AFTER_REVOCATION
    assert chain.verdict("k0", KEYS[1], None) is KeyVerdict.KEY_MISMATCH
    assert chain.verdict("k7", KEYS[1], None) is KeyVerdict.UNKNOWN_KEY
    before = read_key_chain(TWO, KEYS[0])
    assert before.verdict("k0", KEYS[0], None) is KeyVerdict.SUPERSEDED


def test_a_head_has_one_heir():
    with pytest.raises(ChainBroken, match="not signed by the head 'k1'"):
        rotated(TWO, 0, 2, APRIL)


def test_a_revoked_head_vouches_for_nobody():
    ended = revoked(TWO, 1, "k1", APRIL)
    with pytest.raises(Conflict, match="vouches for nothing"):
        rotated(ended, 1, 2, MAY)
    with pytest.raises(Conflict, match="vouches for nothing"):
        revoked(ended, 1, "k0", MAY)


def test_a_chain_that_leads_nowhere_says_so():
    closed = revoked(TWO, 1, "k1", APRIL)
    notes = {
        name: list(chain_notes(read_key_chain(data, KEYS[0])))
        for name, data in {
            "open": revoked(TWO, 1, "k0", APRIL),
            "closed": closed,
            "void": revoked(ROOT, 0, "k0", APRIL),
        }.items()
    }
    assert notes["open"] == []
    assert [note.split(":")[0] for note in notes["closed"]] == [
        "its head 'k1' is revoked, so no key can follow"
    ]
    assert [note.split(":")[0] for note in notes["void"]] == [
        "every key of the chain is revoked",
        "its head 'k0' is revoked, so no key can follow",
    ]


REFUSED = {
    "a key twice": (lambda: rotated(TWO, 1, 0, APRIL), Conflict),
    "a day without a time": (lambda: rotated(TWO, 1, 2, "2026-04-01"), InvalidInput),
    "a heir before the head": (lambda: rotated(TWO, 1, 2, "2026-02-01T00:00:00Z"), ChainBroken),
    "an unknown key revoked": (lambda: revoked(TWO, 1, "k9", APRIL), InvalidInput),
    "a key revoked before it was": (
        lambda: revoked(TWO, 1, "k1", "2026-02-01T00:00:00Z"),
        ChainBroken,
    ),
    "a key revoked twice": (
        lambda: revoked(revoked(TWO, 1, "k0", APRIL), 1, "k0", MAY),
        Conflict,
    ),
    "a root without a name": (lambda: new_key_chain(KEYS[0], ""), InvalidInput),
    "a root whose name a terminal would act on": (
        lambda: new_key_chain(KEYS[0], "k\x1b[2J"),
        InvalidInput,
    ),
    "a heir whose name is two lines": (
        lambda: succession(read_key_chain(TWO, None), KEYS[2], "k\nOK", APRIL),
        InvalidInput,
    ),
    "a heir whose name no file can hold": (
        lambda: succession(read_key_chain(TWO, None), KEYS[2], "k\udc80", APRIL),
        InvalidInput,
    ),
    "a heir without a name": (
        lambda: succession(read_key_chain(TWO, None), KEYS[2], "", APRIL),
        InvalidInput,
    ),
    "a name twice": (
        lambda: succession(read_key_chain(TWO, None), KEYS[2], "k0", APRIL),
        Conflict,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_entry_that_no_verifier_would_take_is_not_made(what):
    make, error = REFUSED[what]
    with pytest.raises(error):
        make()


def changed(data: bytes, **members) -> bytes:
    return canonical_bytes({**json.loads(data), **members}, Profile.PY_JSON)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        ROOT + ROOT,
        ROOT.replace(b'"1.0.0"', b"NaN"),
        ROOT.replace(b'"1.0.0"', b"9" * 5000),
        changed(ROOT, root=5),
        changed(ROOT, root={"public_key_jwk": {"kid": "k0"}}),
        changed(ROOT, root={"kid": ["k0"], "public_key_jwk": KEYS[0].jwk("k0")}),
        changed(ROOT, entries={}),
        changed(ROOT, entries=[None]),
        changed(ROOT, entries=[{"seq": True}]),
        changed(ROOT, entries=[{"seq": 1, "kind": []}]),
        changed(TWO, entries=json.loads(TWO)["entries"] * 2),
        changed(ROOT, chain_type=[]),
        changed(ROOT, note="free text"),
    ],
)
def test_bytes_that_are_no_chain_are_refused_with_a_word_for_why(data):
    with pytest.raises(ChainBroken) as caught:
        read_key_chain(data, KEYS[0])
    assert caught.value.metadata["check"]
    assert caught.value.metadata["substrate"] == "key-chain"


def test_without_a_pin_a_chain_is_its_own_root():
    assert read_key_chain(TWO, None).keys[0].key == KEYS[0]
    with pytest.raises(ChainBroken, match="another key than the pinned one"):
        read_key_chain(TWO, KEYS[1])
    with pytest.raises(BernsteinError, match="pin is unusable"):
        read_key_chain(TWO, b"no key")
