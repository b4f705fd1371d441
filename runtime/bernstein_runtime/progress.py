"""Long work as a stream: how far it is from time to time, the result at the end."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")
Report = Callable[[int, int], None]
EVERY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Done:
    """How far the work is: of `total_bytes`, `done_bytes`."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Finished(Generic[Result]):
    """The work's result."""

    value: Result


def with_progress(work: Callable[[Report], Result]) -> Iterator[Done | Finished[Result]]:
    """Run `work` in a thread of its own; it reports, the iterator tells. Its errors are raised."""
    told: queue.SimpleQueue[Done | Finished[Result] | BaseException] = queue.SimpleQueue()
    last = time.monotonic()

    def report(done_bytes: int, total_bytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY_SECONDS:
            last = now
            told.put(Done(done_bytes, total_bytes))

    def run() -> None:
        try:
            told.put(Finished(work(report)))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            told.put(error)

    # It works for the same request.
    threading.Thread(target=copy_context().run, args=(run,), name="long-work", daemon=True).start()
    while True:
        item = told.get()
        if isinstance(item, BaseException):
            raise item
        yield item
        if isinstance(item, Finished):
            return
