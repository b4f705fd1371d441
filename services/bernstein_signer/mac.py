"""The file of the audit key: where it is, who may read it, and how one is made.

Places and rules are the peer's (docs/formats/audit.md, section "Keys"): both programs use one key.
"""

import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from bernstein_formats.errors import Conflict, KeyUnusable
from bernstein_formats.mac import MacKeys, mac_keys
from bernstein_runtime.places import audit_key_path
from bernstein_runtime.private import make_private
from bernstein_signer.key import write_new
from bernstein_signer.secret_file import FILE_BYTES_MAX

_REMEDY = "make one with `bernstein services init`, or name it: [signer] audit_key_file"


def mac_keys_from(configured: str, environ: Mapping[str, str]) -> Callable[[], MacKeys]:
    """How to come by the keys; read for each use, so that a key may be made at any time."""
    return lambda: load_mac_keys(audit_key_path(configured, environ))


def load_mac_keys(path: Path) -> MacKeys:
    """KeyUnusable where the file is missing, empty, or open to others. Never makes it."""
    try:
        # Not to wait for a writer, should it be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = _read_private(descriptor, path)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise KeyUnusable(
            f"there is no audit key {path}; {_REMEDY}", source=path, absent=path
        ) from error
    except OSError as error:
        raise KeyUnusable(f"audit key {path}: {error.strerror}", source=path) from error
    try:
        return mac_keys(content)
    except KeyUnusable as error:
        raise KeyUnusable(f"{path}: {error.message}", source=path) from error


def _read_private(descriptor: int, path: Path) -> bytes:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise KeyUnusable(f"audit key {path} is not a regular file; name a key file", source=path)
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        raise KeyUnusable(
            f"audit key {path} has mode {mode:04o}, so that others may have it; "
            f"run `chmod 600 {path}`, and make another one if they do",
            source=path,
        )
    content = os.read(descriptor, FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise KeyUnusable(f"audit key {path} is far too large for a key", source=path)
    return content


def ensure_mac_key(path: Path) -> bool:
    """Make the key unless it is there: 64 hex characters, mode 0600; whether it was made."""
    if path.exists():
        load_mac_keys(path)
        return False
    make_private(path.parent, path.parent.parent, "name the key's file with audit_key_file")
    try:
        write_new(path, secrets.token_hex(32).encode())
    except Conflict:
        return False  # the peer, or another of us, was faster
    return True
