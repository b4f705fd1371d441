"""A failed system call on a file → our own error: what is wrong, where, and what to do."""

import errno
import os
import re
from pathlib import Path

from bernstein_formats.errors import BernsteinError, DiskFull, StoreFailed
from bernstein_runtime import limits

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_OURS = "make it readable and writable for this user"
_GONE = "its folder is gone: make it again, or name another one"
_TOO_MANY_OPEN = "raise the limit of open files (`ulimit -n`)"
ADVICE = {
    errno.EACCES: _NOT_OURS,
    errno.EPERM: _NOT_OURS,
    errno.EROFS: "its file system is read-only: make it writable, or name another folder",
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.EEXIST: "something else is there: move it away",
    errno.EISDIR: "there must be a file: move the folder away",
    errno.EINVAL: "there must be a regular file",
    errno.ENAMETOOLONG: "choose shorter names",
    errno.ELOOP: "links there lead in a circle: correct them",
    errno.EMFILE: _TOO_MANY_OPEN,
    errno.ENFILE: _TOO_MANY_OPEN,
}
_OTHERWISE = "the system's log may say more"
_NUMBER = re.compile(r"\[Errno -?[0-9]+\] ")


def in_words(error: Exception) -> str:
    """What an error says, without the number that the system has for it."""
    return _NUMBER.sub("", str(error))


def failed(path: Path, error: OSError) -> BernsteinError:
    """The error for a failed system call on `path`."""
    if error.errno in NO_SPACE:
        return DiskFull(
            f"no space left for {path}: nothing was written; make room and try again", path=path
        )
    advice = ADVICE.get(error.errno or 0, _OTHERWISE)
    return StoreFailed(f"{path}: {error.strerror or error}; {advice}", path=path)


def free_bytes(folder: Path) -> int:
    """Room for this user on a folder's file system. Raises StoreFailed."""
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        raise failed(folder, error) from error
    return facts.f_bavail * facts.f_frsize


def check_room(folder: Path) -> None:
    """Raise DiskFull where not even one message fits any more, StoreFailed where none could."""
    check_folder(folder)
    nearest = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if free_bytes(nearest) < limits.MESSAGE_BYTES_MAX:
        raise DiskFull(f"no space left for {folder}; make room", path=folder)


def check_folder(folder: Path) -> None:
    """Raise StoreFailed where a folder, or the nearest that is there, cannot be written to."""
    nearest = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise unwritable(nearest)


def unwritable(path: Path) -> StoreFailed:
    """The error for what a run needs, before it is begun."""
    return StoreFailed(
        f"{path} cannot be written, so that a run begun now could not be recorded and sealed;"
        " see `bernstein services doctor`",
        path=path,
    )
