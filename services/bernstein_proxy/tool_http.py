"""A tool server at an HTTP address: `/l/<lane>/mcp/<name>`, recorded and replayed.

A POST is an exchange like a model call. The stream that a client opens with GET is only the way for
what the server says unasked: each event of it is a row. Ending a session and pings are passed on
and not recorded. Rules: docs/formats/mcp.md.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

from aiohttp import ClientError, ClientResponse, ClientSession, web
from yarl import URL

from bernstein_formats.errors import ProviderFailed
from bernstein_formats.event_stream import EventParser
from bernstein_formats.http_exchange import Answer, End, body_of
from bernstein_formats.http_key import HttpRequest, Pairs
from bernstein_formats.http_replay import LaneReplay
from bernstein_formats.mcp_message import (
    PING,
    Kind,
    Message,
    Readdressed,
    answer_to_ping,
    message_of,
)
from bernstein_formats.mcp_transcript import UNASKED
from bernstein_proxy.lanes import Lane, Way
from bernstein_proxy.playback import Found, NotFound, look_up
from bernstein_proxy.recording import Said, recorded
from bernstein_proxy.relay import relay, sending
from bernstein_proxy.requests import Asked, error_response, read_request
from bernstein_proxy.sending import Stream
from bernstein_proxy.tool_answers import readdressed, unasked
from bernstein_proxy.tool_sse import (
    ENDPOINT,
    EVENT_TYPE,
    event_of,
    record_way,
    replay_way,
    take_post,
)

EVENT_STREAM: Final = "text/event-stream"
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024
_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


async def record_tool(
    request: web.Request, asked: Asked, lane: Lane, session: ClientSession
) -> web.StreamResponse:
    """Answer a request of a lane that records."""
    if (way := _way(request, asked, lane)) is not None:
        return await take_post(request, asked, lane, way, session)
    message = message_of(await request.read()) if request.method == "POST" else None
    if request.method == "POST" and not _is_ping(message):
        return await relay(request, asked, lane, session)
    return await _passed_on(request, asked, lane, session)


async def replay_tool(
    request: web.Request, asked: Asked, lane: Lane, replay: LaneReplay, session: ClientSession
) -> web.StreamResponse:
    """Answer a request of a lane that replays."""
    if (way := _way(request, asked, lane)) is not None:
        return await take_post(request, asked, lane, way, session)
    if request.method == "GET":
        return await _replayed_stream(request, asked, lane)
    if request.method == "DELETE":
        return web.Response()
    return await _replayed_post(request, asked, lane, replay)


async def _replayed_stream(request: web.Request, asked: Asked, lane: Lane) -> web.StreamResponse:
    server = lane.tool_server(asked.path)
    if server.has_lines:
        return await replay_way(request, asked, lane)
    if not server.says_anything_unasked:
        return web.Response(status=405)
    return await _say_unasked(request, asked, lane)


async def _replayed_post(
    request: web.Request, asked: Asked, lane: Lane, replay: LaneReplay
) -> web.StreamResponse:
    server, whole = lane.tool_server(asked.path), await read_request(request, asked)
    message = message_of(whole.body)
    if message is not None and _is_ping(message):
        return web.Response(body=answer_to_ping(message), content_type="application/json")
    if message is not None and message.kind is Kind.ANSWER:
        await server.client_answered(message.request_id)
    lane.arrive_at_tool()
    found = await look_up(whole, lane, replay)
    if isinstance(found, NotFound):
        await server.close()
        return found.response(whole)
    return await _say(request, asked, lane, found, message)


async def _say(
    request: web.Request, asked: Asked, lane: Lane, found: Found, message: Message | None
) -> web.StreamResponse:
    server, answer, out = lane.tool_server(asked.path), found.exchange.answer, Stream(request)
    changed = await readdressed(lane, found, message)
    if answer.status:
        await out.start(answer.status, found.envelope.response_headers)
    for part in _parts(found):
        await out.write(_told(part, changed))
        if not await server.may_go_on(found.exchange, _data(part)):
            await out.finish(End.ABORTED)
            return out.response
    await server.taken(found.exchange)
    if answer.end is End.CLIENT_GONE:
        await asyncio.Event().wait()
    await out.finish(answer.end)
    return out.response


async def _say_unasked(request: web.Request, asked: Asked, lane: Lane) -> web.StreamResponse:
    server, out = lane.tool_server(asked.path), Stream(request)
    await out.start(200, EVENT_TYPE)
    while (row := await server.next_due()) is not None:
        if (found := await unasked(lane, row)) is None:
            break
        await out.write(found.body)
    await out.finish(End.ABORTED)
    return out.response


async def _passed_on(
    request: web.Request, asked: Asked, lane: Lane, session: ClientSession
) -> web.StreamResponse:
    whole, out = await read_request(request, asked), Stream(request)
    try:
        response = await sending(whole, asked, lane, session)
    except (ClientError, TimeoutError, OSError) as error:
        text = f"PROVIDER_FAILED: the tool server did not answer ({type(error).__name__})"
        return error_response(502, asked.protocol, text, ProviderFailed.reason)
    end = End.COMPLETE
    async with response:
        await out.start(response.status, _headers(response))
        is_way = request.method == "GET" and response.content_type == EVENT_STREAM
        parts = _events_of(response) if is_way else response.content.iter_any()
        try:
            async for part in parts:
                event = event_of(part) if is_way else None
                if event is not None and event.event == ENDPOINT:
                    end = await record_way(
                        response.url.join(URL(event.data)), parts, out, asked, lane
                    )
                elif not is_way or await _kept(lane, asked.path, part):
                    await out.write(part)
                else:
                    end = End.ABORTED
                    break
        except (ClientError, TimeoutError):
            end = End.ABORTED
    await out.finish(end)
    return out.response


async def _kept(lane: Lane, path: str, event: bytes) -> bool:
    """Whether the event may be shown: it is no message, or it is stored."""
    if message_of(_data(event)) is None:
        return True
    seq = lane.arrive_at_tool()
    whole = HttpRequest(UNASKED, path, (), (), b"")
    answer = Answer(200, body_of(event), End.COMPLETE, None, "")
    said = Said(answer, event, EVENT_TYPE, ((len(event), 0.0),))
    storing = lane.store(seq, partial(recorded, lane, seq, whole, said))
    return await asyncio.shield(storing) is not None


def _way(request: web.Request, asked: Asked, lane: Lane) -> Way | None:
    return lane.ways.get(asked.rest.rpartition("/")[2]) if request.method == "POST" else None


def _is_ping(message: Message | None) -> bool:
    return message is not None and message.kind is Kind.REQUEST and message.method == PING


def _is_stream(headers: Pairs) -> bool:
    return any(
        name.lower() == "content-type" and value.lower().startswith(EVENT_STREAM)
        for name, value in headers
    )


def _headers(response: ClientResponse) -> Pairs:
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
    )


def _parts(found: Found) -> Iterator[bytes]:
    """The events of a stream, or the body as a whole."""
    body = found.body
    if not _is_stream(found.envelope.response_headers):
        yield body
        return
    at = 0
    for ending in _END_OF_EVENT.finditer(body):
        yield body[at : ending.end()]
        at = ending.end()
    if at < len(body):
        yield body[at:]


async def _events_of(response: ClientResponse) -> AsyncIterator[bytes]:
    """The bytes of each event, with the blank line at its end."""
    begun = b""
    async for piece in response.content.iter_any():
        begun += piece
        at = 0
        for ending in _END_OF_EVENT.finditer(begun):
            yield begun[at : ending.end()]
            at = ending.end()
        begun = begun[at:]
        if len(begun) > EVENT_BYTES_MAX:
            raise ClientError("an event without an end")
    if begun:
        yield begun


def _data(part: bytes) -> str | bytes:
    """The message in an event; anything else as it is."""
    events = EventParser().feed(part) if b"data:" in part else []
    return events[0].data if events else part


def _told(part: bytes, changed: Readdressed | None) -> bytes:
    """A part as it is told to who asks."""
    data = _data(part)
    if changed is None or isinstance(data, bytes):
        return part if changed is None else changed.line(part)
    told = changed.line(data.encode())
    if told == data.encode():
        return part
    kept = [
        line
        for line in part.splitlines(keepends=True)
        if not line.startswith(b"data") and line.strip()
    ]
    return b"".join([*kept, b"data: ", told, b"\n\n"])
