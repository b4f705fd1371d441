"""Private Ed25519 keys: made here, loaded here from every form in use, and nowhere else.

Forms: docs/formats/run-receipt.md, section 4.3. Every refusal says what was found, where, and what
to do; none shows a byte of it.
"""

import base64
import binascii
import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from bernstein_formats.errors import BernsteinError, Conflict, KeyUnusable
from bernstein_formats.public_key import PublicKey, check_key_name
from bernstein_runtime.disk import failed
from bernstein_signer.private_half import PrivateHalf
from bernstein_signer.secret_file import read_secret_file, unusable
from bernstein_store.durable import sync_folder, write_all

SEED_SIZE: Final = 32
_HEX: Final = re.compile(rb"[0-9a-fA-F]+")
_BEGIN: Final = b"-----BEGIN "
_ENCRYPTED: Final = "ENCRYPTED PRIVATE KEY"
_MAKE_ONE: Final = "make one with `bernstein keys new FILE`"
log = structlog.get_logger()


class Key:
    """A private key under the name that its receipts give it."""

    __slots__ = ("_private", "key_id", "public_key")

    def __init__(self, private: PrivateHalf, key_id: str) -> None:
        """InvalidInput for a name that cannot be shown as it is."""
        check_key_name(key_id)
        self._private = private
        self.key_id = key_id
        self.public_key = PublicKey(private.public_raw())

    def sign(self, preimage: bytes) -> bytes:
        """The 64 bytes of RFC 8032's signature, the same every time."""
        return self._private.sign(preimage)

    def public_pem(self) -> bytes:
        """The half that may be shown."""
        public = Ed25519PublicKey.from_public_bytes(self.public_key.raw)
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class _InMemory:
    """A private half that this process holds."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    def public_raw(self) -> bytes:
        return self._private.public_key().public_bytes_raw()

    def sign(self, preimage: bytes) -> bytes:
        return self._private.sign(preimage)


def load_key_file(path: Path, key_id: str = "", passphrase: bytes | None = None) -> Key:
    """The key in a file: PEM PKCS#8, 32 raw bytes, or those with white space around them.

    A passphrase is for PEM that is encrypted, and not used for any other file.
    """
    source = f"key file {path}"
    data = read_secret_file(path, source)
    if not data:
        raise unusable(source, "is empty", _MAKE_ONE)
    if _is_pem(data):
        private = _private_in_pem(data, source, passphrase)
    else:
        private = _seed(_raw_seed(data, source))
    return Key(_InMemory(private), key_id or path.name)


def take_key_variable(environ: MutableMapping[str, str], name: str, key_id: str = "") -> Key:
    """The key in an environment variable, which is removed first, whatever it holds."""
    source = f"environment variable {name}"
    text = environ.pop(name, "")
    if not text:
        raise unusable(source, "is empty or not set", "set it, or name another one")
    return Key(_InMemory(_private_in_text(text, source)), key_id or name)


def create_key(path: Path) -> Key:
    """Make a key and write it, durably and readable by its owner alone; Conflict if it is there."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_new(path, pem)
    return Key(_InMemory(private), path.name)


def create_key_pair(path: Path) -> Path:
    """Make a key and, beside it, its public half, whose path is the answer."""
    public_path = path.with_name(f"{path.stem}.pub.pem")
    if public_path.exists():
        raise Conflict(f"{public_path} is there already and stays; name another file")
    key = create_key(path)
    try:
        write_new(public_path, key.public_pem())
    except BernsteinError:
        path.unlink()  # nobody has it yet, and it would be in the way the next time
        raise
    return public_path


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, mode 0600, durable on return. Never overwrites."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise Conflict(
            f"{path} is there already and stays; name another file", path=path
        ) from error
    except OSError as error:
        raise failed(path, error) from error


def _is_pem(data: bytes) -> bool:
    return len(data) != SEED_SIZE and data.lstrip().startswith(_BEGIN)


def _private_in_pem(data: bytes, source: str, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    label = data.lstrip().removeprefix(_BEGIN).partition(b"-----")[0].decode("ascii", "replace")
    _refuse_label(label, source, has_passphrase=passphrase is not None)
    is_encrypted = label == _ENCRYPTED
    try:
        private = load_pem_private_key(data, password=passphrase if is_encrypted else None)
    except (ValueError, UnsupportedAlgorithm) as error:
        if is_encrypted:
            raise unusable(
                source, "cannot be decrypted", "check the passphrase, and that it is Ed25519's"
            ) from error
        raise unusable(source, "holds a PEM block that cannot be read", _MAKE_ONE) from error
    except TypeError as error:  # how the library says that a passphrase is missing
        raise _encrypted(source) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise unusable(source, "holds a key of another algorithm than Ed25519", _MAKE_ONE)
    return private


def _refuse_label(label: str, source: str, *, has_passphrase: bool) -> None:
    if label == _ENCRYPTED and not has_passphrase:
        raise _encrypted(source)
    if label == "OPENSSH PRIVATE KEY":
        raise unusable(source, "is an OpenSSH key, not PEM PKCS#8", _MAKE_ONE)
    if not label.endswith("PRIVATE KEY"):
        raise unusable(source, "begins with another PEM block than a private key", _MAKE_ONE)


def _encrypted(source: str) -> KeyUnusable:
    return unusable(
        source, "is encrypted, and no passphrase is named",
        "set [signer] receipt_passphrase_file for the resident signer, give `bernstein keys`"
        " --passphrase-file, or decrypt it into a file of mode 0600: `openssl pkcs8 -in OLD -out"
        " NEW`",
    )  # fmt: skip


def _raw_seed(data: bytes, source: str) -> bytes:
    # Exactly 32 bytes are the seed, white space at its ends included, as in the peer.
    seed = data if len(data) == SEED_SIZE else data.strip()
    if len(seed) != SEED_SIZE:
        raise unusable(source, f"holds {_guess(seed)}", f"give PEM PKCS#8 or 32 bytes; {_MAKE_ONE}")
    return seed


def _guess(data: bytes) -> str:
    """What somebody may have taken for a key."""
    if _BEGIN in data:
        return "text before its PEM block"
    if data.startswith(b"{"):
        return "JSON (a JWK?), which is not read"
    if _HEX.fullmatch(data):
        return "hexadecimal text, which is not read"
    if data.startswith(b"\x30"):
        return "DER, which is not read"
    if len(data) == 2 * SEED_SIZE:
        return "64 bytes (seed and public half?), which are not read"
    return f"{len(data)} bytes that are no key"


def _private_in_text(text: str, source: str) -> Ed25519PrivateKey:
    if text.lstrip().startswith(_BEGIN.decode()):
        lines = text if "\n" in text else text.replace("\\n", "\n")
        return _private_in_pem(lines.encode("utf-8", "replace"), source)
    try:
        if text.startswith("raw:"):
            return _seed_of(bytes.fromhex(text.removeprefix("raw:")), source)
        if text.startswith("rawb64:"):
            value = text.removeprefix("rawb64:")
            return _seed_of(base64.b64decode(value, validate=True), source)
        seed = text.encode()
    except (ValueError, binascii.Error) as error:
        raise unusable(source, "holds a value that cannot be decoded", _MAKE_ONE) from error
    if len(seed) != SEED_SIZE:
        hint = "give PEM PKCS#8, or `raw:` and hexadecimal, or `rawb64:` and base64"
        raise unusable(source, f"holds {_guess(seed)}", hint)
    log.warning("key_variable_taken_as_raw_seed", source=source, want="raw:<hexadecimal>")
    return _seed(seed)


def _seed_of(seed: bytes, source: str) -> Ed25519PrivateKey:
    if len(seed) != SEED_SIZE:
        raise unusable(source, f"holds a seed of {len(seed)} bytes", f"a seed has {SEED_SIZE}")
    return _seed(seed)


def _seed(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)
