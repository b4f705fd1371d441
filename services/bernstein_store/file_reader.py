"""A file that is read in many small pieces: opened once, no look at its path between them."""

import os
from pathlib import Path

from bernstein_runtime.disk import failed
from bernstein_runtime.regular_file import open_descriptor


class FileReader:
    """See `bernstein_store.store.Reader`."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError, StoreFailed."""
        self._path = path
        self._file = -1
        try:
            self._file = open_descriptor(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failed(path, error) from error

    def __del__(self) -> None:
        """Readers are many and live as long as a replay: whoever drops one closes it."""
        if self._file >= 0:
            os.close(self._file)

    def read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._file, length, offset)
        except OSError as error:
            raise failed(self._path, error) from error

    def facts(self) -> tuple[int, float]:
        found = os.fstat(self._file)
        return found.st_size, found.st_mtime
