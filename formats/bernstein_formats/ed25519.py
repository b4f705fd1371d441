"""What we ask of the cryptography library: Ed25519 public keys (RFC 8032) and nothing else."""

import base64
import re
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bernstein_formats.errors import KeyUnusable

# The whole of an Ed25519 key's SubjectPublicKeyInfo but its 32 bytes (RFC 8410, section 4).
_SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
_FIRST_BLOCK: Final = re.compile(
    rb"-----BEGIN PUBLIC KEY-----\r?\n([A-Za-z0-9+/]{59}=)\r?\n-----END PUBLIC KEY-----"
)


def verifies(raw_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature of 64 bytes is that key's over the message."""
    try:
        Ed25519PublicKey.from_public_bytes(raw_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def raw_key_of_pem(pem: bytes) -> bytes:
    """The 32 bytes of a PEM public key; KeyUnusable for anything else."""
    match = _FIRST_BLOCK.match(pem, pem.find(b"-----BEGIN "))
    der = base64.b64decode(match[1]) if match else b""
    if len(der) == 44 and der.startswith(_SPKI_PREFIX):
        return der[len(_SPKI_PREFIX) :]
    return _raw_key_of_other_pem(pem)


def _raw_key_of_other_pem(pem: bytes) -> bytes:
    """Another layout, or another key: the library, slow to load, decides."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - likewise
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(
            "not a PEM public key: give the PUBLIC KEY block of the signer"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable("the PEM public key is not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
