"""Writing a receipt where the user wants it: whole or not at all, over nothing but a receipt."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bernstein_cli.whole_file import replacing
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
        with replacing(path) as file:
            built = build(file.write)
        with replacing(path.with_name(COSE_NAME)) as file:
            file.write(built.cose)
    except OSError as error:
        raise StoreFailed(
            f"cannot write {path}: {error.strerror}; choose another place with --output", path=path
        ) from error
    return built


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
