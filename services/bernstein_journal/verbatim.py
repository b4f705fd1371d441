"""Rows that an importer ships: appended exactly as they came, one writer a file."""

import threading

from bernstein_formats.errors import HeadMoved, LimitExceeded
from bernstein_runtime import limits
from bernstein_store.store import Store


class VerbatimLogs:
    """Safe for any number of threads; one append at a time, since importers send large pieces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()

    def append(self, name: str, start_offset: int, data: bytes) -> int:
        """The file's size afterwards. Bytes that are there already are not appended again."""
        if len(data) > limits.BATCH_BYTES_MAX:
            raise LimitExceeded(
                f"{len(data)} bytes; a request takes at most {limits.BATCH_BYTES_MAX}"
            )
        with self._lock:
            stored = self._store.size(name) or 0
            if start_offset + len(data) <= stored:
                there = b"".join(self._store.read(name, start_offset, start_offset + len(data)))
                if there == data:
                    return stored
            if start_offset != stored:
                raise HeadMoved(
                    f"{name} has {stored} bytes and these were to follow {start_offset}; "
                    "the source was changed, or another importer is at work",
                    size_bytes=stored,
                )
            log = self._store.open_log(name)
            try:
                log.append(data, [])
                return log.size
            finally:
                log.close()
