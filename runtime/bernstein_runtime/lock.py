"""One live process a place: a lock file that the kernel gives back when its owner dies."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from bernstein_formats.errors import Conflict, StoreFailed


class LockFile:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock or raise Conflict at once; never waits."""
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreFailed(f"cannot open {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise Conflict(
                f"{self._path} is held by another live process", path=self._path
            ) from error

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
