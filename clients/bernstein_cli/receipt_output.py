"""Writing a receipt where the user wants it: whole or not at all, over nothing but a receipt."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from bernstein_client.values import BuiltReceipt
from bernstein_formats.errors import Conflict, StoreFailed
from bernstein_formats.run_receipt import RECEIPT_TYPE
from bernstein_runtime.regular_file import open_regular

COSE_NAME: Final = "run-receipt.cose"
_MARK: Final = f'"receipt_type":"{RECEIPT_TYPE}"'.encode()
_READ_BYTES: Final = 1024 * 1024

Write = Callable[[bytes], object]
Build = Callable[[Write], BuiltReceipt]


def check_output(path: Path) -> None:
    """Refuse a place where something else than a receipt would be lost. Raises Conflict."""
    if path.is_dir():
        raise Conflict(f"{path} is a folder; give --output a file name", path=path)
    if path.exists() and not path.is_file():
        raise Conflict(f"{path} is no regular file; give --output another name", path=path)
    if path.exists() and path.stat().st_size and not _is_receipt(path):
        raise Conflict(f"{path} is no receipt and stays; give --output another name", path=path)
    cose = path.with_name(COSE_NAME)
    if path.name == COSE_NAME:
        raise Conflict(f"{path} is where the COSE file goes; give --output another name", path=path)
    if cose.is_dir():
        raise Conflict(f"{cose} is a folder; the receipt's COSE file goes there", path=cose)


def write_receipt(path: Path, build: Build) -> BuiltReceipt:
    """Build into `path` and its COSE sibling."""
    path = Path(os.path.realpath(path))
    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(path) as file:
            built = build(file.write)
        with _replacing(path.with_name(COSE_NAME)) as file:
            file.write(built.cose)
    except OSError as error:
        raise StoreFailed(
            f"cannot write {path}: {error.strerror}; choose another place with --output", path=path
        ) from error
    return built


def write_new_file(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, whole or not at all. Raises Conflict, StoreFailed."""
    if path.exists():
        raise Conflict(f"{path} is there already and stays; name another file", path=path)
    replace_file(path, data)


def replace_file(path: Path, data: bytes) -> None:
    """Have a file hold other bytes: the old ones or the new ones, never a part. StoreFailed."""
    try:
        with _replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}", path=path) from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is whole and on stable storage."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_receipt(path: Path) -> bool:
    """Whether a file says of itself, in a receipt's own spelling, that it is one."""
    before = b""
    with open_regular(path) as file:
        if file.read(1) != b"{":
            return False
        while chunk := file.read(_READ_BYTES):
            if _MARK in before + chunk:
                return True
            before = chunk[-len(_MARK) :]
    return False
