"""Who follows a file hears that it grew, from any process: NOTIFY after the commit, by one thread.

Not in the transaction itself: a transaction that notifies commits alone, with a lock that all of
the server share. A notification may get lost with a connection, so followers look by themselves
from time to time, too.
"""

import threading
from collections.abc import Callable
from typing import Final

import psycopg
import structlog

from bernstein_formats.errors import BernsteinError
from bernstein_store.postgres.pool import Connection, connected
from bernstein_store.postgres.target import Target

_CHANNEL: Final = "bernstein"
_RETRY_SECONDS: Final = 1.0
_LISTEN_SECONDS: Final = 1.0
# More names at once say "everything": who follows, looks.
_NAMES_MAX: Final = 1000
log = structlog.get_logger()

Name = tuple[int, str]


class Notifier:
    """Safe for any number of threads. Without a listener nothing is started."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._condition = threading.Condition()
        self._waiting: set[Name] = set()
        self._listeners: dict[int, Callable[[str], None]] = {}
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def listen(self, origin_id: int, on_changed: Callable[[str], None]) -> None:
        """Have it hear the names of an origin's changed files; it must not block."""
        self._listeners[origin_id] = on_changed
        with self._condition:
            if not self._threads:
                self._threads = [
                    threading.Thread(
                        target=self._again, args=(work,), name=work.__name__, daemon=True
                    )
                    for work in (self._tell_all, self._hear_all)
                ]
                for thread in self._threads:
                    thread.start()

    def forget(self, origin_id: int) -> None:
        """Nobody follows an origin's files any more."""
        self._listeners.pop(origin_id, None)

    def changed(self, origin_id: int, name: str) -> None:
        """A change was committed: tell everybody, those in this process at once."""
        if not self._threads:
            return
        self._hear(origin_id, name)
        with self._condition:
            if len(self._waiting) < _NAMES_MAX:
                self._waiting.add((origin_id, name))
            self._condition.notify()

    def close(self) -> None:
        """End both threads."""
        self._stopped.set()
        with self._condition:
            self._condition.notify()
        for thread in self._threads:
            thread.join()

    def _hear(self, origin_id: int, name: str) -> None:
        listener = self._listeners.get(origin_id)
        if listener is not None:
            listener(name)

    def _again(self, work: Callable[[Connection], None]) -> None:
        while not self._stopped.is_set():
            try:
                with connected(self._target) as connection:
                    work(connection)
            except (BernsteinError, psycopg.Error) as error:
                log.warning("notifier_lost", error=type(error).__name__)
                self._stopped.wait(_RETRY_SECONDS)

    def _tell_all(self, connection: Connection) -> None:
        """What gathers while one message is under way leaves together in the next."""
        # A notification is a commit of its own, which would wait for the disk and the standby.
        connection.execute("set synchronous_commit = off")
        while not self._stopped.is_set():
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._stopped.is_set())
                names, self._waiting = self._waiting, set()
            payloads = [f"{origin_id} {name}" for origin_id, name in names]
            connection.execute(
                "select pg_notify(%s, payload) from unnest(%s::text[]) as payload",
                [_CHANNEL, payloads],
            )

    def _hear_all(self, connection: Connection) -> None:
        connection.execute(f"listen {_CHANNEL}")
        while not self._stopped.is_set():
            for heard in connection.notifies(timeout=_LISTEN_SECONDS):
                origin_id, _, name = heard.payload.partition(" ")
                if origin_id.isdigit() and name:
                    self._hear(int(origin_id), name)
