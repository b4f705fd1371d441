"""Following a run's rows: what the stream's messages are, and the stream for asyncio programs."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.values import Row, Watched, WatchedRows, WatchPlace
from bernstein_runtime.channel import Target
from bernstein_runtime.connector import Connector
from bernstein_runtime.outgoing import metadata
from bernstein_runtime.status import error_from

# How often a stream is asked for again in vain before its error is the caller's.
WATCH_TRIES: Final = 5


def watched(answer: journal_pb2.WatchRowsResponse) -> Watched:
    """The value of one message."""
    if answer.HasField("rows"):
        return WatchedRows(answer.rows.first_index, tuple(answer.rows.lines))
    return WatchPlace(answer.place.run_id, answer.place.next_index, answer.place.is_sealed)


class Watching:
    """Reads the messages of one stream, and puts rows together that come in parts."""

    def __init__(self) -> None:
        self._row = bytearray()

    def take(self, answer: journal_pb2.WatchRowsResponse) -> Watched | None:
        """None while a row is not whole yet."""
        if not answer.HasField("part"):
            return watched(answer)
        self._row += answer.part.data
        if not answer.part.is_last:
            return None
        row, self._row = bytes(self._row), bytearray()
        return WatchedRows(answer.part.index, (row,))


def index_after(item: Watched) -> int:
    """Where to go on after a message."""
    if isinstance(item, WatchedRows):
        return item.first_index + len(item.lines)
    return item.next_index


def rows_of(item: Watched) -> Iterator[Row]:
    """The rows of a message, which may have none."""
    if isinstance(item, WatchedRows):
        for offset, line in enumerate(item.lines):
            yield Row(item.first_index + offset, line)


class AsyncWatcher:
    """The journal's streams for an event loop; many at a time over one channel."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._target: Target | None = None
        # Streams that began with a former channel go on there.
        self._channels: list[grpc.aio.Channel] = []

    async def watch_rows(self, run_id: str, start_index: int) -> AsyncGenerator[Watched, None]:
        """Like JournalClient.watch_rows, without going on after a restart of the journal: the
        caller asks again."""
        await asyncio.to_thread(self._connector.ensure, "journal")
        request = journal_pb2.WatchRowsRequest(run_id=run_id, start_index=start_index)
        call = journal_pb2_grpc.JournalServiceStub(self._channel()).WatchRows(
            request, metadata=(*metadata(), *self._connector.metadata)
        )
        try:
            async for answer in call:
                yield watched(answer)
        except grpc.aio.AioRpcError as failure:
            raise error_from(failure) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all streams."""
        for channel in self._channels:
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        target = self._connector.target("journal")
        if target != self._target:
            self._channels.append(target.open_async())
            self._target = target
        return self._channels[-1]
