"""The role table's file, read again when it changes: a grant that was taken away ends at once."""

import threading
import time
from pathlib import Path
from typing import Final

import structlog

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.regular_file import open_regular
from bernstein_runtime.role_table import RoleTable, parse_role_table

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
# How soon a change is seen.
_LOOK_SECONDS: Final = 0.5
log = structlog.get_logger()


class RoleFile:
    """The newest usable table. Safe for any number of threads."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidInput: without a table nobody may do anything, and nothing is served."""
        self._path = path
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._state = self._facts()
        self._table = self._read()

    def table(self) -> RoleTable:
        """As it is now; the one before, as long as the file cannot be used."""
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return self._table
        with self._lock:
            self._looked_at = time.monotonic()
            state = self._facts()
            if state != self._state:
                self._state = state
                self._renew()
        return self._table

    def _renew(self) -> None:
        try:
            self._table = self._read()
        except InvalidInput as error:
            log.error(  # noqa: TRY400 - no bug of ours
                "role_table_not_renewed", reason=error.reason, error=error.message
            )
        else:
            log.info("role_table_renewed", path=str(self._path), grants=len(self._table.grants))

    def _facts(self) -> tuple[int, int, int]:
        try:
            facts = self._path.stat()
        except OSError:
            return 0, 0, 0
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def _read(self) -> RoleTable:
        try:
            with open_regular(self._path) as file:
                data = file.read(FILE_BYTES_MAX + 1)
            text = data.decode("utf-8")
        except OSError as error:
            raise InvalidInput(
                f"[access] file {self._path}: {error.strerror}", path=self._path
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"[access] file {self._path}: byte {error.start} is no UTF-8", path=self._path
            ) from error
        if len(data) > FILE_BYTES_MAX:
            raise InvalidInput(
                f"[access] file {self._path} is larger than {FILE_BYTES_MAX} bytes", path=self._path
            )
        return parse_role_table(text, str(self._path))
