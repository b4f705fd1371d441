"""Coalescing appends of threads: events that arrive while a message is in flight leave together in
the next.

Each caller still waits until its own event is durable. A gRPC message costs about the same with one
event as with sixty-four, so this is the only path there is.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bernstein_client.append_line import (
    AppendResult,
    EncodedEvent,
    Line,
    may_send_again,
    share_out,
    size_of,
)
from bernstein_formats.errors import BernsteinError

# A pause for callers side by side only: whoever appends alone never waits.
GATHERING_SECONDS = 0.0005
Send = Callable[[Sequence[EncodedEvent]], AppendResult]


@dataclass(slots=True)
class _Caller:
    """A thread that waits."""

    events: Sequence[EncodedEvent]
    size: int
    # Held until there is something to do; a bare lock is the cheapest way to wake one thread.
    wake: threading.Lock = field(default_factory=threading.Lock)
    result: AppendResult | None = None
    error: BernsteinError | None = None

    def answered(self, result: AppendResult) -> None:
        self.result = result
        self.wake.release()

    def refused(self, error: BernsteinError) -> None:
        self.error = error
        self.wake.release()


class Appender:
    """The appends of one run. The first caller in line sends for all who wait."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._line: Line[_Caller] = Line()
        self._sending = False
        self._last_count = 0

    def append(self, events: Sequence[EncodedEvent]) -> AppendResult:
        """Blocks until `events` are durable: all of them, in this order, without others between."""
        mine = _Caller(events, size_of(events))
        mine.wake.acquire()
        with self._lock:
            self._line.waiting.append(mine)
            is_sender = not self._sending
            self._sending = True
        if not is_sender:
            mine.wake.acquire()
        if mine.result is None and mine.error is None:
            self._send_until(mine)
        if mine.error is not None:
            raise mine.error
        assert mine.result is not None
        return mine.result

    def _send_until(self, mine: _Caller) -> None:
        """Send batches until `mine` is answered, then make the next in line the sender."""
        try:
            while mine.result is None and mine.error is None:
                self._send_batch()
        finally:
            with self._lock:
                if self._line.waiting:
                    self._line.waiting[0].wake.release()
                else:
                    self._sending = False

    def _send_batch(self) -> None:
        if len(self._line.waiting) < self._last_count:
            # Those who were just answered are about to ask again: one message for them all costs
            # less than one for each, for them too.
            time.sleep(GATHERING_SECONDS)
        with self._lock:
            batch = self._line.take()
        self._last_count = len(batch)
        try:
            share_out(batch, self._send([event for each in batch for event in each.events]))
        except BernsteinError as error:
            self._fail(batch, error)

    def _fail(self, batch: list[_Caller], error: BernsteinError) -> None:
        again = may_send_again(batch, error)
        for waiting in batch:
            if not again:
                waiting.refused(error)
                continue
            try:
                waiting.answered(self._send(waiting.events))
            except BernsteinError as own:
                waiting.refused(own)
