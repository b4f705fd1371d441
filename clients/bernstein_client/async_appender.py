"""Coalescing appends of tasks, like those of threads in bernstein_client.appender.

One task sends; those who wait may be cancelled at any time. A caller that is cancelled does not
know whether its events are there: all of them, or none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bernstein_client.append_line import (
    AppendResult,
    EncodedEvent,
    Line,
    may_send_again,
    share_out,
    size_of,
)
from bernstein_formats.errors import BernsteinError, Unavailable

# Events that may stand in line; whoever comes then waits before it stands there.
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
Send = Callable[[Sequence[EncodedEvent]], Awaitable[AppendResult]]


@dataclass(slots=True, eq=False)
class _Caller:
    """A task that waits; its future is done when it does so no longer."""

    events: Sequence[EncodedEvent]
    size: int
    future: asyncio.Future[AppendResult]

    def answered(self, result: AppendResult) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def refused(self, error: BernsteinError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class AsyncAppender:
    """The appends of one run, for one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._line: Line[_Caller] = Line()
        self._size = 0
        self._has_room = asyncio.Condition()
        self._sender: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[EncodedEvent]) -> AppendResult:
        """Returns once `events` are durable: all of them, in this order, without others between."""
        size = size_of(events)
        if self._size and self._size + size > LINE_BYTES_MAX:
            async with self._has_room:
                await self._has_room.wait_for(
                    lambda: not self._size or self._size + size <= LINE_BYTES_MAX
                )
        mine = _Caller(events, size, asyncio.get_running_loop().create_future())
        self._line.waiting.append(mine)
        self._size += size
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all())
        return await mine.future

    async def close(self) -> None:
        """Returns once nobody waits any more."""
        if self._sender is not None:
            await asyncio.wait([self._sender])

    async def _send_all(self) -> None:
        batch: list[_Caller] = []
        try:
            while self._line.waiting:
                # Those who were just answered ask again before the next message leaves.
                await asyncio.sleep(0)
                batch = self._line.take()
                self._size -= sum(each.size for each in batch)
                async with self._has_room:
                    self._has_room.notify_all()
                # Whoever was cancelled in line is not sent.
                await self._send_batch([each for each in batch if not each.future.done()])
        finally:
            # A loop that ends cancels this task, too: nobody may wait for ever.
            for waiting in (*batch, *self._line.waiting):
                waiting.refused(Unavailable("the loop ended meanwhile; the row may be there"))

    async def _send_batch(self, batch: list[_Caller]) -> None:
        if not batch:
            return
        try:
            share_out(batch, await self._send([event for each in batch for event in each.events]))
        except BernsteinError as error:
            if not may_send_again(batch, error):
                for waiting in batch:
                    waiting.refused(error)
                return
            for waiting in batch:
                await self._send_batch([waiting])
