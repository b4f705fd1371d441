"""Agents at work side by side: one thread an attempt, never more than there is room for.

Threads are daemons: an interrupted run does not wait for a model that does not answer.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bernstein_formats.errors import BernsteinError

_Result = TypeVar("_Result")
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Done(Generic[_Result]):
    """What came of one piece of work; neither: its thread died of a fault of ours."""

    name: str
    result: _Result | None = None
    error: BernsteinError | None = None


class Crew(Generic[_Result]):
    """Starts named pieces of work and hands out their results, by name or as they come."""

    def __init__(self, size: int, stop: threading.Event) -> None:
        """Have room for so many; once `stop` is set nothing more begins."""
        self._room = threading.Semaphore(size)
        self._stop = stop
        self._changed = threading.Condition()
        self._done: dict[str, Done[_Result]] = {}
        self._awaited: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], _Result], *, is_awaited: bool = False) -> None:
        """Begin when there is room; `is_awaited` work is waited for even after a stop."""
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        if is_awaited:
            self._awaited.append(thread)
        thread.start()

    def settle(self) -> None:
        """After a stop: wait for what must not be left behind."""
        for thread in self._awaited:
            thread.join()

    def take(self, name: str | None = None) -> Done[_Result] | None:
        """Wait for the named result, or for the next of any; None once `stop` is set."""
        with self._changed:
            while not self._stop.is_set():
                found = next(iter(self._done), None) if name is None else name
                if found in self._done:
                    return self._done.pop(found)
                self._changed.wait(_POLL_SECONDS)
        return None

    def _run(self, name: str, work: Callable[[], _Result]) -> None:
        done: Done[_Result] = Done(name)
        with self._room:
            try:
                if not self._stop.is_set():
                    done = Done(name, result=work())
            except BernsteinError as error:
                done = Done(name, error=error)
            finally:
                with self._changed:
                    self._done[name] = done
                    self._changed.notify_all()
