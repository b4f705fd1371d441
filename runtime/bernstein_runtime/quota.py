"""How much one caller may have under way, so that it keeps the others from nothing.

Counted by each process for itself, in memory.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.errors import QueueFull, TooMany, TooManyStreams
from bernstein_runtime.targets import Target

HOUR_SECONDS: Final = 3600.0
# Requests of one caller are taken in while they have fewer bytes together; the next ones wait.
TURN_BYTES: Final = 1024 * 1024
# Room is kept so long for a request: whoever sends none must not keep others of its name waiting.
TURN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Quota:
    """Of each caller, at one service."""

    calls: int = 32
    streams: int = 256
    # Of requests that are being worked on.
    bytes: int = 16 * 1024 * 1024
    # Runs that it opened and did not finish, as far as this process saw.
    open_runs: int = 10_000
    # Requests with an id, in an hour.
    request_ids: int = 1_000_000


@dataclass(slots=True, eq=False)
class _Coming:
    """A request that is being taken in, as large as the one before for all that is known."""

    size: int
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Used:
    """What one caller has under way."""

    # Its lock is that of all that is here: no caller waits for another one's.
    turns: threading.Condition = field(default_factory=threading.Condition)
    coming: list[_Coming] = field(default_factory=list)
    last_size: int = 0
    calls: int = 0
    streams: int = 0
    bytes: int = 0
    open_runs: set[Target] = field(default_factory=set)
    request_ids: int = 0
    hour_began: float = field(default_factory=time.monotonic)

    def has_room(self) -> bool:
        """Whether one more request can be taken in; one alone always can."""
        since = time.monotonic() - TURN_SECONDS
        others = self.bytes + sum(each.size for each in self.coming if each.began > since)
        return not others or others + self.last_size <= TURN_BYTES


class Quotas:
    """What all callers have under way. Safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, _Used] = {}

    @contextmanager
    def call(self, caller: str, quota: Quota, *, is_stream: bool) -> Iterator["Held"]:
        """While one call is under way. Raises QueueFull, TooManyStreams."""
        with self._lock:
            used = self._used.setdefault(caller, _Used())
        with used.turns:
            if is_stream and used.streams >= quota.streams:
                raise TooManyStreams(
                    f"{caller} has {used.streams} streams open, and may have {quota.streams};"
                    " end some of them",
                    caller=caller,
                )
            if not is_stream and used.calls >= quota.calls:
                raise QueueFull(
                    f"{caller} has {used.calls} calls under way, and may have {quota.calls};"
                    " try again",
                    caller=caller,
                )
            used.streams += is_stream
            used.calls += not is_stream
        held = Held(used, caller, quota)
        try:
            yield held
        finally:
            with used.turns:
                used.streams -= is_stream
                used.calls -= not is_stream
                used.bytes -= held.bytes
                used.turns.notify()


@dataclass(slots=True)
class Held:
    """What one call takes of its caller's quota."""

    _used: _Used
    _caller: str
    _quota: Quota
    bytes: int = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While a request is taken in, once there is room for it: it stays with its sender until
        then, so that a caller with much to say fills neither memory nor the queues of others."""
        with self._used.turns:
            used = self._used
            while not used.has_room():
                used.turns.wait(TURN_SECONDS)
            coming = _Coming(used.last_size)
            used.coming.append(coming)
        try:
            yield
        finally:
            with self._used.turns:
                used.coming.remove(coming)
                used.turns.notify()

    def take_bytes(self, count: int) -> None:
        """Of a request, or of the next message of one. Raises QueueFull."""
        with self._used.turns:
            others = self._used.bytes - self.bytes
            # One message is always let through: it could never be sent otherwise.
            if others and others + count > self._quota.bytes:
                raise QueueFull(
                    f"{self._caller} has requests of {others} bytes under way, and may have"
                    f" {self._quota.bytes}; try again, with fewer side by side",
                    caller=self._caller,
                )
            self._used.bytes = others + count
            self._used.last_size = count
            self.bytes = count

    def drop_bytes(self) -> None:
        """The message was dealt with, and the next one is not there yet."""
        with self._used.turns:
            self._used.bytes -= self.bytes
            self.bytes = 0
            self._used.turns.notify()

    def take_request_id(self) -> None:
        """Raises TooMany: to try again at once would be in vain."""
        with self._used.turns:
            now = time.monotonic()
            if now - self._used.hour_began >= HOUR_SECONDS:
                self._used.hour_began, self._used.request_ids = now, 0
            if self._used.request_ids >= self._quota.request_ids:
                raise TooMany(
                    f"{self._caller} has sent {self._used.request_ids} requests with an id within"
                    f" an hour, and may send {self._quota.request_ids}; send more in one request",
                    caller=self._caller,
                )
            self._used.request_ids += 1

    def open_run(self, run: Target) -> None:
        """Raises TooMany."""
        with self._used.turns:
            opened = self._used.open_runs
            if run not in opened and len(opened) >= self._quota.open_runs:
                raise TooMany(
                    f"{self._caller} has {len(opened)} runs open, and may have"
                    f" {self._quota.open_runs}; finish some of them",
                    caller=self._caller,
                )
            opened.add(run)

    def finish_run(self, run: Target) -> None:
        with self._used.turns:
            self._used.open_runs.discard(run)
