"""The file operations that survive a crash, apart from the logic that uses them.

Each raises our own errors: DiskFull when the device is full, StoreFailed for anything else.
"""

import os
import secrets
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

from bernstein_formats.errors import BernsteinError, StoreFailed
from bernstein_runtime.disk import failed


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write everything, however many calls it takes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; each new name is durable."""
    if folder.is_dir():
        return
    try:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise failed(folder, error) from error


def replace(path: Path, parts: Iterable[bytes]) -> int:
    """Write a new file and put it in the place of `path`; a crash leaves the old or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    size = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for part in parts:
                write_all(descriptor, part)
                size += len(part)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise failed(path, error) from error
    except BernsteinError:
        temporary.unlink(missing_ok=True)
        raise
    return size


def remove_entries(folder: Path, keep: Collection[str], last: str) -> None:
    """Empty a folder except for what is kept; links are removed, never followed. Raises OSError."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name == last)
    for entry in found:
        if entry.name in keep:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    if any(entry.name in keep for entry in found):
        sync_folder(folder)
    else:
        folder.rmdir()
        sync_folder(folder.parent)


def stop_for_good(path: Path, error: OSError) -> NoReturn:
    """After a failed sync nobody knows what is on the disk: no further word can be trusted."""
    raise StoreFailed(
        f"{path}: {error.strerror}; what was written last is unknown: the log is closed, verify it",
        path=path,
    ) from error
