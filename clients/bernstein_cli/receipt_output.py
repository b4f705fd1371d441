"""Writing a receipt where the user wants it: whole or not at all, over nothing but a receipt.

Its COSE file goes beside it as run-receipt.cose, as in the peer. Where that is another receipt's it
is called after its own, and verification looks under both names.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bernstein_cli.whole_file import replacing
from bernstein_client.values import BuiltReceipt
from bernstein_formats.errors import Conflict, StoreFailed
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import COSE_FILE, COSE_SUFFIX, RECEIPT_TYPE, cose_name
from bernstein_runtime.regular_file import open_regular, read_regular

_MARK: Final = f'"receipt_type":"{RECEIPT_TYPE}"'.encode()
_READ_BYTES: Final = 1024 * 1024

Write = Callable[[bytes], object]
Build = Callable[[Write], BuiltReceipt]


def check_output(path: Path) -> Path:
    """Refuse a place where something else than a receipt would be lost. Raises Conflict.

    Gives the place of the COSE file.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise Conflict(f"{path} is a folder; give --output a file name", path=path)
    if path.exists() and not path.is_file():
        raise Conflict(f"{path} is no regular file; give --output another name", path=path)
    if path.exists() and path.stat().st_size and not _is_receipt(path):
        raise Conflict(f"{path} is no receipt and stays; give --output another name", path=path)
    if path.suffix == COSE_SUFFIX:
        raise Conflict(f"{path} is named like a COSE file; give --output another name", path=path)
    return _cose_place(path)


def write_receipt(path: Path, build: Build) -> tuple[BuiltReceipt, Path]:
    """Build into `path`; gives the place of the COSE file, too."""
    path = Path(os.path.realpath(path))
    cose = check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not os.path.lexists(cose)
        with replacing(path) as file:
            built = build(file.write)
        if is_new:
            cose = _reserved(cose, path)
        with replacing(cose) as file:
            file.write(built.cose)
    except OSError as error:
        raise StoreFailed(
            f"cannot write {path}: {error.strerror}; choose another place with --output", path=path
        ) from error
    return built, cose


def refuse_cose_of_another(path: Path) -> None:
    """Raise Conflict where `path` has, under its own name, a COSE file that is not its own."""
    own = path.with_name(cose_name(path.name))
    if os.path.lexists(own) and not _belongs(own, path):
        raise Conflict(f"{own} is no COSE file of {path} and stays; name another file", path=own)


def _cose_place(path: Path) -> Path:
    refuse_cose_of_another(path)
    own, shared = path.with_name(cose_name(path.name)), path.with_name(COSE_FILE)
    if os.path.lexists(own):
        return own
    return own if os.path.lexists(shared) and not _belongs(shared, path) else shared


def _belongs(cose: Path, receipt: Path) -> bool:
    """Whether a COSE file holds with the receipt that is there; what is no file does not."""
    try:
        return verify_receipt(read_regular(receipt), cose=read_regular(cose)).cose_verified
    except OSError:
        return False


def _reserved(cose: Path, path: Path) -> Path:
    """Make the COSE file, under the other name where a build beside this one was quicker."""
    for place in (cose, path.with_name(cose_name(path.name))):
        try:
            place.touch(exist_ok=False)
        except FileExistsError:
            continue
        return place
    raise Conflict(f"{cose} was made meanwhile and stays; give --output another name", path=cose)


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
