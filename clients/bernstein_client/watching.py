"""Following a run's rows: what the stream's messages are, and the stream for asyncio programs."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.values import Watched, WatchedRows, WatchPlace
from bernstein_runtime.channel import OPTIONS
from bernstein_runtime.outgoing import metadata
from bernstein_runtime.status import error_from
from bernstein_runtime.supervisor import Supervisor

# How often a stream is asked for again in vain before its error is the caller's.
WATCH_TRIES: Final = 5


def watched(answer: journal_pb2.WatchRowsResponse) -> Watched:
    """The value of one message."""
    if answer.HasField("rows"):
        return WatchedRows(answer.rows.first_index, tuple(answer.rows.lines))
    return WatchPlace(answer.place.run_id, answer.place.next_index, answer.place.is_sealed)


def index_after(item: Watched) -> int:
    """Where to go on after a message."""
    if isinstance(item, WatchedRows):
        return item.first_index + len(item.lines)
    return item.next_index


class AsyncWatcher:
    """The journal's streams for an event loop; many at a time over one channel."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        target = f"unix:{supervisor.places.socket('journal')}"
        self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        self._stub = journal_pb2_grpc.JournalServiceStub(self._channel)

    async def watch_rows(self, run_id: str, start_index: int) -> AsyncGenerator[Watched, None]:
        """Like JournalClient.watch_rows, without going on after a restart of the journal: the
        caller asks again."""
        await asyncio.to_thread(self._supervisor.ensure, "journal")
        request = journal_pb2.WatchRowsRequest(run_id=run_id, start_index=start_index)
        call = self._stub.WatchRows(request, metadata=metadata())
        try:
            async for answer in call:
                yield watched(answer)
        except grpc.aio.AioRpcError as failure:
            raise error_from(failure) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all streams."""
        await self._channel.close()
