"""Rows that an importer ships: appended exactly as they came, one writer a file."""

import threading
from collections import OrderedDict

from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunNotFound,
    RunSealed,
)
from bernstein_runtime import limits
from bernstein_store.store import Log, Store

OPEN_LOGS_MAX = 64


class VerbatimLogs:
    """Safe for any number of threads; one append at a time, since importers send large pieces.

    Logs stay open between pieces: one that is opened anew puts half a row aside.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._open: OrderedDict[str, Log] = OrderedDict()

    def append(self, run_id: str, name: str, start_offset: int, data: bytes) -> int:
        """The file's size afterwards. Bytes that are there already are not appended again.

        Raises RunNotFound, RunSealed, HeadMoved, LimitExceeded and what a log raises.
        """
        if len(data) > limits.PIECE_BYTES_MAX:
            raise LimitExceeded(
                f"{len(data)} bytes; a request takes at most {limits.PIECE_BYTES_MAX}"
            )
        if not self._store.has_run(run_id):
            raise RunNotFound(f"there is no run {run_id}; create it first", run_id=run_id)
        with self._lock:
            stored = self._store.size(name) or 0
            if self._is_there(name, start_offset, data, stored):
                return stored
            if self._store.size(paths.seal_path(run_id)) is not None:
                raise RunSealed(f"run {run_id} is finished and sealed here", run_id=run_id)
            log = self._log(name)
            log.catch_up()
            if start_offset != log.size:
                raise HeadMoved(
                    f"{name} has {log.size} bytes and these were to follow {start_offset}; "
                    "the source was changed, or another importer is at work",
                    size_bytes=log.size,
                )
            if self._appended(name, log, data):
                return log.size
            return self.append(run_id, name, start_offset, data)

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            for log in self._open.values():
                log.close()
            self._open.clear()

    def _is_there(self, name: str, start: int, data: bytes, stored: int) -> bool:
        end = start + len(data)
        return end <= stored and b"".join(self._store.read(name, start, end)) == data

    def _log(self, name: str) -> Log:
        if name not in self._open:
            self._open[name] = self._store.open_log(name)
        self._open.move_to_end(name)
        while len(self._open) > OPEN_LOGS_MAX:
            self._open.popitem(last=False)[1].close()
        return self._open[name]

    def _appended(self, name: str, log: Log, data: bytes) -> bool:
        """Whether it could be; not, when another journal brought the log further meanwhile."""
        try:
            log.append(data, [])
        except ForeignWriter:
            size = log.size
            log.catch_up()
            if log.size == size:
                raise
            return False
        except BernsteinError:
            self._open.pop(name).close()
            raise
        return True
