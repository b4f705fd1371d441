"""A configuration file that is read again when it changes: what it took away ends at once.

A new file that cannot be used changes nothing and is logged; without a usable one at the start
nothing is served.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.regular_file import open_regular

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
# How soon a change is seen.
_LOOK_SECONDS: Final = 0.5
Content = TypeVar("Content")
log = structlog.get_logger()


class RereadFile(Generic[Content]):
    """The newest usable content. Safe for any number of threads."""

    def __init__(self, path: Path, setting: str, parse: Callable[[str, str], Content]) -> None:
        """`setting` names it to people; `parse` takes text and source. Raises InvalidInput."""
        self._path = path
        self._setting = setting
        self._parse = parse
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._state = self._facts()
        self._content = self._read()

    def now(self) -> Content:
        """As it is now; the one before, as long as the file cannot be used."""
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return self._content
        with self._lock:
            self._looked_at = time.monotonic()
            state = self._facts()
            if state != self._state:
                self._state = state
                self._renew()
        return self._content

    def _renew(self) -> None:
        try:
            self._content = self._read()
        except InvalidInput as error:
            log.error(  # noqa: TRY400 - no bug of ours
                "file_not_renewed",
                setting=self._setting,
                reason=error.reason,
                error=error.message,
            )
        else:
            log.info("file_renewed", setting=self._setting, path=str(self._path))

    def _facts(self) -> tuple[int, int, int]:
        try:
            facts = self._path.stat()
        except OSError:
            return 0, 0, 0
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def _read(self) -> Content:
        try:
            with open_regular(self._path) as file:
                data = file.read(FILE_BYTES_MAX + 1)
            text = data.decode("utf-8")
        except OSError as error:
            raise self._unusable(f": {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._unusable(f": byte {error.start} is no UTF-8") from error
        if len(data) > FILE_BYTES_MAX:
            raise self._unusable(f" is larger than {FILE_BYTES_MAX} bytes")
        return self._parse(text, str(self._path))

    def _unusable(self, what: str) -> InvalidInput:
        return InvalidInput(f"{self._setting} {self._path}{what}", path=self._path)
