"""Reads what only a file may hold: a key, a passphrase, a PIN.

Every refusal says what was found and where; none shows a byte of it.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from bernstein_formats.errors import KeyUnusable

FILE_BYTES_MAX: Final = 64 * 1024
# Where systemd puts what a unit's LoadCredential= names: systemd.exec(5), "Credentials".
CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"
log = structlog.get_logger()


def read_secret_file(path: Path, source: str) -> bytes:
    """Its bytes, perhaps none. Raises KeyUnusable that names `source`."""
    try:
        # Not to wait for a writer, should it be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = _read_open(descriptor, source)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unusable(source, f"cannot be read ({error.strerror})", "check its name") from error
    if len(data) > FILE_BYTES_MAX:
        raise unusable(source, "is far too large for a key", "name another file")
    return data


def read_passphrase(name: str, environ: Mapping[str, str], what: str) -> bytes:
    """The first line of a file, or of a credential that systemd handed over under this name."""
    path = Path(name)
    if not path.is_absolute():
        folder = environ.get(CREDENTIALS, "")
        if not folder or "/" in name:
            raise unusable(
                f"{what} {name!r}",
                "is no absolute path, and systemd handed no credentials over",
                "name a file, or start the signer from a unit with LoadCredential=",
            )
        path = Path(folder) / name
    source = f"{what} {path}"
    line = read_secret_file(path, source).partition(b"\n")[0].removesuffix(b"\r")
    if not line:
        raise unusable(source, "begins with an empty line", "write it into the first line")
    return line


def unusable(source: str, what: str, remedy: str) -> KeyUnusable:
    """The error for a key, or what unlocks it, that cannot be used."""
    return KeyUnusable(f"{source} {what}; {remedy}", source=source)


def _read_open(descriptor: int, source: str) -> bytes:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise unusable(source, "is not a regular file", "name another file")
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        log.warning("key_file_mode_is_loose", source=source, mode=f"{mode:04o}", want="0600")
    data = b""
    while len(data) <= FILE_BYTES_MAX and (part := os.read(descriptor, FILE_BYTES_MAX)):
        data += part
    return data
