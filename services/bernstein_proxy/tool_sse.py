"""The older way to a tool server at an address: what it says comes as a stream that GET opens, and
the first event says where messages are posted. Kept as lines, like the traffic of a pipe.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import ClientError, ClientSession, web
from yarl import URL

from bernstein_formats.errors import ProviderFailed
from bernstein_formats.event_stream import EventParser, ServerEvent
from bernstein_formats.http_exchange import End
from bernstein_proxy.lanes import Lane, Way
from bernstein_proxy.requests import Asked, error_response, read_request
from bernstein_proxy.sending import Stream
from bernstein_proxy.tool_pipe import (
    FROM_CLIENT,
    FROM_SERVER,
    SERVER_ENDED,
    Broken,
    Recording,
    Replay,
)

EVENT_TYPE: Final = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"))
ENDPOINT: Final = "endpoint"
_MESSAGE: Final = frozenset({"", "message"})


class _Events:
    """Tells lines as events."""

    def __init__(self, out: Stream) -> None:
        self._out = out

    async def write(self, line: bytes) -> None:
        await self._out.write(b"event: message\ndata: " + line.rstrip(b"\n") + b"\n\n")

    async def finish(self, end: End) -> None:
        await self._out.finish(end)


def event_of(part: bytes) -> ServerEvent | None:
    """The event in these bytes; None for a comment."""
    events = EventParser().feed(part)
    return events[0] if events else None


async def record_way(
    url: URL, events: AsyncIterator[bytes], out: Stream, asked: Asked, lane: Lane
) -> End:
    """Pass on a stream whose first event said that messages go to `url`; gives how it ended."""
    if url.origin() != lane.wanted.upstreams[asked.provider].url("", "").origin():
        lane.fail(f"the tool server {asked.path} wants messages at another host; not passed on")
        return End.ABORTED
    side = Recording(lane, asked.path, _Events(out))
    name = lane.open_way(Way(side, url))
    try:
        await out.write(_endpoint(lane, asked, name))
        async for part in events:
            event = event_of(part)
            if event is not None and event.event in _MESSAGE:
                await side.take(FROM_SERVER, event.data.encode() + b"\n")
            else:
                await out.write(part)
        await side.take(SERVER_ENDED, b"")
    except Broken:
        return End.ABORTED
    finally:
        side.close()
        lane.close_way(name)
    return End.COMPLETE


async def replay_way(request: web.Request, asked: Asked, lane: Lane) -> web.StreamResponse:
    """The stream of a server that is not there."""
    out = Stream(request)
    await out.start(200, EVENT_TYPE)
    side = Replay(lane, asked.path, _Events(out))
    name = lane.open_way(Way(side, None))
    try:
        await out.write(_endpoint(lane, asked, name))
        # Ended from outside: by the agent that leaves, or by the lane's end.
        await asyncio.Event().wait()
    finally:
        side.close()
        lane.close_way(name)
    return out.response


async def take_post(
    request: web.Request, asked: Asked, lane: Lane, way: Way, session: ClientSession
) -> web.StreamResponse:
    """A message of the client; the answer to it comes on the stream."""
    whole = await read_request(request, asked)
    try:
        await way.side.take(FROM_CLIENT, whole.body.rstrip(b"\r\n") + b"\n")
    except Broken:
        return web.Response(status=502)
    if way.url is None:
        return web.Response(status=202, text="Accepted")
    headers = lane.wanted.upstreams[asked.provider].headers(whole.headers)
    try:
        async with session.post(way.url, data=whole.body, headers=headers) as response:
            return web.Response(status=response.status, body=await response.read())
    except (ClientError, TimeoutError, OSError) as error:
        text = f"PROVIDER_FAILED: the tool server did not answer ({type(error).__name__})"
        return error_response(502, asked.protocol, text, ProviderFailed.reason)


def _endpoint(lane: Lane, asked: Asked, name: str) -> bytes:
    return f"event: {ENDPOINT}\ndata: /l/{lane.token}{asked.path}/{name}\n\n".encode()
