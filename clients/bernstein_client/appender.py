"""Coalescing appends: events that arrive while a message is in flight leave together in the next.

Each caller still waits until its own event is durable. A gRPC message costs about the same with one
event as with sixty-four, so this is the only path there is.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bernstein_formats.errors import BernsteinError, InvalidInput, LimitExceeded
from bernstein_runtime import limits

# A pause for callers side by side only: whoever appends alone never waits.
GATHERING_SECONDS = 0.0005
EncodedEvent = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where events landed: the first one's position, the head and the row count after the last."""

    first_index: int
    head_hash_hex: str
    row_count: int


Send = Callable[[Sequence[EncodedEvent]], AppendResult]


@dataclass(slots=True)
class _Waiting:
    """One caller's events until they are answered."""

    events: Sequence[EncodedEvent]
    size: int
    # Held until there is something to do; a bare lock is the cheapest way to wake one thread.
    wake: threading.Lock = field(default_factory=threading.Lock)
    result: AppendResult | None = None
    error: BernsteinError | None = None


class Appender:
    """The appends of one run. The first caller in line sends for all who wait."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._sending = False
        self._last_count = 0

    def append(self, events: Sequence[EncodedEvent]) -> AppendResult:
        """Blocks until `events` are durable: all of them, in this order, without others between."""
        mine = _Waiting(events, sum(len(payload) + 64 for _, payload in events))
        if len(events) > limits.BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"{len(events)} events at once; at most {limits.BATCH_EVENTS_MAX} land together"
            )
        mine.wake.acquire()
        with self._lock:
            self._waiting.append(mine)
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

    def _send_until(self, mine: _Waiting) -> None:
        """Send batches until `mine` is answered, then make the next in line the sender."""
        try:
            while mine.result is None and mine.error is None:
                self._send_batch()
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting[0].wake.release()
                else:
                    self._sending = False

    def _send_batch(self) -> None:
        if len(self._waiting) < self._last_count:
            # Those who were just answered are about to ask again: one message for them all costs
            # less than one for each, for them too.
            time.sleep(GATHERING_SECONDS)
        batch = self._take()
        self._last_count = len(batch)
        try:
            answer = self._send([event for waiting in batch for event in waiting.events])
        except BernsteinError as error:
            self._fail(batch, error)
            return
        index = answer.first_index
        for waiting in batch:
            after = index + len(waiting.events)
            waiting.result = AppendResult(index, answer.head_hash_hex, after)
            index = after
            waiting.wake.release()

    def _fail(self, batch: list[_Waiting], error: BernsteinError) -> None:
        """One bad event must not fail its neighbours: they are sent one by one.

        Only after a refusal, which says that nothing landed. After anything else the batch may be
        there, and to send it again under other request ids would double it.
        """
        if len(batch) == 1 or not isinstance(error, InvalidInput):
            for waiting in batch:
                waiting.error = error
                waiting.wake.release()
            return
        for waiting in batch:
            try:
                waiting.result = self._send(waiting.events)
            except BernsteinError as own:
                waiting.error = own
            waiting.wake.release()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = size = 0
        with self._lock:
            while self._waiting:
                following = self._waiting[0]
                count += len(following.events)
                size += following.size
                full = count > limits.BATCH_EVENTS_MAX or size > limits.BATCH_BYTES_MAX
                if batch and full:
                    break
                batch.append(self._waiting.popleft())
        return batch
