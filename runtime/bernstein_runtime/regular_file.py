"""Files opened for reading without being kept waiting: a FIFO, socket or device is none.

Whatever folder a command is pointed at, somebody else may have made what stands there.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, NoReturn

from bernstein_formats.errors import StoreFailed

NOT_REGULAR = "not a regular file"


def check_regular(descriptor: int, path: Path) -> None:
    """OSError for anything but a file's bytes."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))


def open_descriptor(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open like os.open. Raises OSError, and never waits for another end."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a FIFO without a reader
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path)) from error
        raise
    try:
        check_regular(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: Path, flags: int = 0) -> IO[bytes]:
    """Open a file for reading; close it. Raises OSError."""
    return os.fdopen(open_descriptor(path, os.O_RDONLY | flags), "rb")


def read_regular(path: Path, size: int = -1) -> bytes:
    """The first `size` bytes of a file, or all of them. Raises OSError."""
    with open_regular(path) as file:
        return file.read(size)


def read_named(path: Path) -> bytes:
    """All of a file that a user named. Raises StoreFailed."""
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror}; check its name", path=path) from error


def regular_files_below(top: Path) -> list[str]:
    """Ways from `top` to the files in it and below, sorted; links and hidden files are left out.

    Raises OSError, also where there is no such folder.
    """
    found = []
    for here, _, names in os.walk(top, onerror=_raise):
        shown = [Path(here, name) for name in names if not name.startswith(".")]
        found += [path for path in shown if stat.S_ISREG(path.lstat().st_mode)]
    return sorted(str(path.relative_to(top)) for path in found)


def _raise(error: OSError) -> NoReturn:
    raise error
