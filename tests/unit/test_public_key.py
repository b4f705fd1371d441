import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bernstein_formats.errors import InvalidInput, KeyUnusable
from bernstein_formats.public_key import PublicKey, decode_base64, parse_jwk, parse_public_pem

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))  # TEST-ONLY
RAW = PRIVATE.public_key().public_bytes_raw()
KEY = PublicKey(RAW)
PEM = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493


def little(number: int) -> bytes:
    return number.to_bytes(32, "little")


def order_eight_points() -> list[bytes]:
    first = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    second = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
    return [first, second, *(each[:31] + bytes([each[31] | 0x80]) for each in (first, second))]


@pytest.mark.parametrize(
    "raw",
    [
        little(0),
        little(2**255),
        little(1),
        little(1 + 2**255),
        little(PRIME - 1),
        little(PRIME - 1 + 2**255),
        *order_eight_points(),
    ],
)
def test_a_point_of_small_order_is_no_key(raw):
    with pytest.raises(KeyUnusable, match="small order"):
        PublicKey(raw)


@pytest.mark.parametrize("y", [PRIME, PRIME + 1, PRIME + 17, 2**255 - 1])
def test_a_second_spelling_of_a_point_is_no_key(y):
    with pytest.raises(KeyUnusable, match="canonical"):
        PublicKey(little(y))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size):
    with pytest.raises(KeyUnusable, match="32 bytes"):
        PublicKey(bytes(size))


def test_a_signature_holds_for_its_message_only():
    signature = PRIVATE.sign(b"message")
    assert KEY.verifies(signature, b"message")
    assert not KEY.verifies(signature, b"another")
    assert not KEY.verifies(signature[:63], b"message")
    assert not KEY.verifies(b"", b"message")


def test_s_plus_the_group_order_is_no_second_signature():
    signature = PRIVATE.sign(b"message")
    s = int.from_bytes(signature[32:], "little") + ORDER
    assert not KEY.verifies(signature[:32] + little(s), b"message")


def test_a_jwk_goes_out_and_comes_back():
    jwk = KEY.jwk("op-1")
    assert list(jwk) == ["alg", "crv", "kid", "kty", "x"]
    assert parse_jwk(jwk) == KEY


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kty": "EC"}, "OKP"),
        ({"crv": "X25519"}, "OKP"),
        ({"d": "AAAA"}, "private"),
        ({"x": None}, "no text x"),
        ({"x": 5}, "no text x"),
        ({"x": base64.urlsafe_b64encode(RAW).decode()}, "base64url|spelling"),
        ({"x": KEY.jwk("k")["x"][:-1]}, "base64url|spelling|32 bytes"),
        ({"x": KEY.jwk("k")["x"] + "*"}, "base64url"),
        ({"x": "é"}, "base64url"),
        ({"x": ""}, "32 bytes"),
    ],
)
def test_a_jwk_that_is_not_one_ed25519_key_is_refused(change, word):
    with pytest.raises(KeyUnusable, match=word):
        parse_jwk({**KEY.jwk("k"), **change})


def test_a_pem_key_may_have_text_around_it_and_the_first_block_counts():
    assert parse_public_pem(b"text\r\n" + PEM.replace(b"\n", b"\r\n") + b"more") == KEY
    other = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    second = other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert parse_public_pem(PEM + second) == KEY


@pytest.mark.parametrize("pem", [b"", RAW, b"\xff\xfe", PEM[:40], b"ssh-ed25519 AAAA"])
def test_what_is_not_pem_is_refused(pem):
    with pytest.raises(KeyUnusable, match="PUBLIC KEY"):
        parse_public_pem(pem)


def test_a_pem_key_of_another_kind_is_refused():
    other = generate_private_key(SECP256R1()).public_key()
    with pytest.raises(KeyUnusable, match="not an Ed25519 key"):
        parse_public_pem(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def test_base64_has_one_spelling():
    assert decode_base64("YQ==") == b"a"
    for text in ("YR==", "YQ", "YQ==\n", "Y Q==", "-_==", "é", "YQ===="):
        with pytest.raises(InvalidInput):
            decode_base64(text)
