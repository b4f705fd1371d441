"""Ends the wait for a server that has stopped without a word: its host froze, or the network did.

The server's own time limits need a server that runs. Who waits for too long has its socket shut
from here, gets an error, and goes on with another connection.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
import structlog

from bernstein_store.postgres.pool import Connection

_LOOK_SECONDS: Final = 0.5
log = structlog.get_logger()


class Watchdog:
    """Safe for any number of threads; its own starts with the first wait and ends with `close`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[Connection, float] = {}
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, connection: Connection, time_limits: int = 1) -> Iterator[None]:
        """While it lasts, the server has to answer, within so many time limits."""
        self._start()
        self._waiting[connection] = time.monotonic() + time_limits * self._seconds
        try:
            yield
        finally:
            self._waiting.pop(connection, None)

    def close(self) -> None:
        """Nobody waits any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
                    self._thread.start()

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for connection, deadline in list(self._waiting.items()):
                if now > deadline and self._waiting.pop(connection, None) is not None:
                    log.warning("server_silent", seconds=self._seconds)
                    _shut(connection)


def _shut(connection: Connection) -> None:
    with (
        suppress(OSError, psycopg.Error),  # it was closed meanwhile
        socket.socket(fileno=os.dup(connection.fileno())) as shared,
    ):
        shared.shutdown(socket.SHUT_RDWR)
