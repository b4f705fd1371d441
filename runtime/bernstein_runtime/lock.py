"""One live process a place: a lock file that the kernel gives back when its owner dies."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bernstein_formats.errors import Conflict
from bernstein_runtime.disk import failed

POLL_SECONDS = 0.02


class LockFile:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, path: Path, wait_seconds: float = 0.0) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock, waiting for it as long as was said, or raise Conflict."""
        give_up = time.monotonic() + self._wait_seconds
        while not self._taken():
            if time.monotonic() >= give_up:
                raise Conflict(f"{self._path} is held by another live process", path=self._path)
            time.sleep(POLL_SECONDS)

    def _taken(self) -> bool:
        # Opened each time: the file may be removed, and made anew by another process, meanwhile.
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise failed(self._path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        if self.is_current():
            return True
        self.release()
        return False

    def is_current(self) -> bool:
        """Whether what is locked is still under its name; not so once its folder was removed."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # it cannot be told now

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether a live process holds the lock. Looking shares it for an instant."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return True  # another user's: nobody but that user can tell
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
