"""What we ask of the cryptography library: Ed25519 public keys (RFC 8032) and nothing else."""

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from bernstein_formats.errors import KeyUnusable


def verifies(raw_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature of 64 bytes is that key's over the message."""
    try:
        Ed25519PublicKey.from_public_bytes(raw_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def raw_key_of_pem(pem: bytes) -> bytes:
    """The 32 bytes of a PEM public key; KeyUnusable for anything else."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(
            "not a PEM public key: give the PUBLIC KEY block of the signer"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable("the PEM public key is not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
