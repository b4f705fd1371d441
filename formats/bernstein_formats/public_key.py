"""Ed25519 public keys as receipts and key chains carry them; private ones are the signer's."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import InvalidInput, KeyUnusable

SIGNATURE_SIZE: Final = 64
NAME_CHARACTERS_MAX: Final = 255
JWK_MEMBERS: Final = frozenset({"alg", "crv", "kid", "kty", "x"})

_FIELD_PRIME: Final = 2**255 - 19
_GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_ORDER_EIGHT_Y: Final = int(
    "7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7", base=16
)
# A signature by one of these points says nothing: with the neutral one it holds for every message.
_SMALL_ORDER_Y: Final = frozenset(
    {0, 1, _FIELD_PRIME - 1, _ORDER_EIGHT_Y, _FIELD_PRIME - _ORDER_EIGHT_Y}
)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The 32 bytes of RFC 8032, checked: one spelling a point, and no point of small order."""

    raw: bytes

    def __post_init__(self) -> None:
        """Refuse, as KeyUnusable, bytes that could not stand for one signer only."""
        if len(self.raw) != 32:
            raise KeyUnusable(f"an Ed25519 public key has 32 bytes, this one {len(self.raw)}")
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if y >= _FIELD_PRIME:
            raise KeyUnusable("the Ed25519 public key is not in its canonical spelling")
        if y in _SMALL_ORDER_Y:
            raise KeyUnusable("the Ed25519 public key has small order: anybody can sign for it")

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature is this key's over the message; S + L is not a second spelling."""
        if len(signature) != SIGNATURE_SIZE:
            return False
        if int.from_bytes(signature[32:], "little") >= _GROUP_ORDER:
            return False
        from bernstein_formats import ed25519  # noqa: PLC0415 - large, and most processes need none

        return ed25519.verifies(self.raw, signature, message)

    def jwk(self, kid: str) -> dict[str, str]:
        """The key in RFC 8037 form, with the name its owner gave it."""
        x = base64.urlsafe_b64encode(self.raw).rstrip(b"=").decode()
        return {"alg": "EdDSA", "crv": "Ed25519", "kid": kid, "kty": "OKP", "x": x}


def check_key_name(name: str) -> None:
    """Refuse a name that we would not put beside a key: whoever reads it must see all of it."""
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidInput(
            f"{name!r:.80} is no name of a key: use 1 to {NAME_CHARACTERS_MAX} characters that can"
            " be printed"
        )


def parse_public_pem(pem: bytes) -> PublicKey:
    """The key of the first PEM block, which must be `PUBLIC KEY`; text around it is allowed."""
    from bernstein_formats import ed25519  # noqa: PLC0415 - likewise

    return PublicKey(ed25519.raw_key_of_pem(pem))


def parse_jwk(jwk: Mapping[str, object]) -> PublicKey:
    """The key of an OKP/Ed25519 JWK; names in it (kid, alg) are the caller's to compare."""
    if jwk.get("kty") != "OKP" or jwk.get("crv") != "Ed25519":
        raise KeyUnusable("the JWK is not an OKP key on Ed25519")
    if "d" in jwk:
        raise KeyUnusable("the JWK carries the private member d: that key is no secret any more")
    return PublicKey(_decode_x(jwk.get("x")))


def _decode_x(x: object) -> bytes:
    if not isinstance(x, str):
        raise KeyUnusable("the JWK has no text x")
    try:
        raw = base64.b64decode(x + "=" * (-len(x) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise KeyUnusable("the JWK's x is not base64url") from error
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != x.encode():
        raise KeyUnusable("the JWK's x is not in the one spelling of its bytes")
    return raw


def decode_base64(text: str) -> bytes:
    """Standard base64 with padding, in the one spelling that its bytes have."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("not standard base64 with padding") from error
    if base64.b64encode(raw) != text.encode():
        raise InvalidInput("not the one base64 spelling of its bytes")
    return raw
