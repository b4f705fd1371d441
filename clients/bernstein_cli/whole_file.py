"""Files that hold the old bytes or the new ones, never a part of either."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bernstein_formats.errors import Conflict, StoreFailed


def write_new_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file that is not there yet, whole or not at all. Raises Conflict, StoreFailed."""
    if path.exists():
        raise Conflict(f"{path} is there already and stays; name another file", path=path)
    replace_file(path, data, mode)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Have a file hold other bytes. Raises StoreFailed."""
    try:
        with replacing(path, mode) as file:
            file.write(data)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}", path=path) from error


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is whole and on stable storage.

    `mode` is what the umask leaves of it. Raises OSError.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # fits, however long the name is
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
