"""Runs the work of a request id once: a retry waits for it, or gets what it gave."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from bernstein_formats.errors import (
    BernsteinError,
    ReplayMissError,
    RequestIdReused,
    Unavailable,
)
from bernstein_runtime.metrics import REPLAY_MISSES

Outcome = TypeVar("Outcome")
# A retry comes within seconds; what is remembered here need not last longer.
REMEMBERED_MAX = 1024
REMEMBERED_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class _Asked(Generic[Outcome]):
    request: str
    future: Future[Outcome]
    size: int = 0


class Once(Generic[Outcome]):
    """Outcomes by request id, the newest ones kept. Thread-safe."""

    def __init__(self, size_of: Callable[[Outcome], int]) -> None:
        self._size_of = size_of
        self._lock = threading.Lock()
        self._asked: OrderedDict[str, _Asked[Outcome]] = OrderedDict()
        self._bytes = 0

    def run(self, request_id: str, request: str, work: Callable[[], Outcome]) -> Outcome:
        """What `work` gives. `request` tells whether the id is used for the same thing again.

        A failure is forgotten, so that the next attempt may do better; a replay's miss is not:
        asking again must not count twice.
        """
        with self._lock:
            found = self._asked.get(request_id)
            if found is None:
                asked = self._asked[request_id] = _Asked[Outcome](request, Future())
        if found is None:
            self._do(request_id, asked, work)
            return asked.future.result()
        if found.request != request:
            raise RequestIdReused(
                f"request id {request_id} was used for another call; make a new one for each call",
                request_id=request_id,
            )
        return found.future.result()

    def _do(self, request_id: str, asked: _Asked[Outcome], work: Callable[[], Outcome]) -> None:
        try:
            outcome = work()
            asked.future.set_result(outcome)
            self._remember(asked, self._size_of(outcome))
        except ReplayMissError as miss:
            REPLAY_MISSES.add()
            asked.future.set_exception(miss)
            self._remember(asked, len(miss.message))
        except BernsteinError as failure:
            self._forget(request_id)
            asked.future.set_exception(failure)
        finally:
            if not asked.future.done():  # a bug of ours; whoever waits must not wait for ever
                self._forget(request_id)
                asked.future.set_exception(Unavailable("the first attempt at this call failed"))

    def _forget(self, request_id: str) -> None:
        with self._lock:
            del self._asked[request_id]

    def _remember(self, asked: _Asked[Outcome], size: int) -> None:
        with self._lock:
            asked.size = size
            self._bytes += size
            while len(self._asked) > REMEMBERED_MAX or self._bytes > REMEMBERED_BYTES_MAX:
                oldest = next(
                    (name for name, each in self._asked.items() if each.future.done()), ""
                )
                if not oldest or self._asked[oldest] is asked:
                    return
                self._bytes -= self._asked.pop(oldest).size
