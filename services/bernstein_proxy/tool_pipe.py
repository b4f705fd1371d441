"""A tool server on standard input and output: `bernstein agent mcp` stands in its place.

Its lines come here framed, `>` from the client, `<` from the server, `!` when the server ended,
each with a length; what goes back is what the client shall read. Recording, a server's line goes
back when it may be shown; replaying, there is no server. Rules: docs/formats/mcp.md.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from aiohttp import StreamReader, web

from bernstein_client.exchanges import Recorded
from bernstein_formats.canonical import spelled
from bernstein_formats.http_exchange import Answer, End, body_of
from bernstein_formats.http_key import MCP_PATH, HttpRequest
from bernstein_formats.http_miss import CODE
from bernstein_formats.mcp_message import (
    PING,
    Kind,
    Message,
    answer_to_ping,
    error_answer,
    message_of,
)
from bernstein_formats.mcp_transcript import STDIO, Asked, Transcript
from bernstein_proxy.lanes import Lane
from bernstein_proxy.playback import Found, NotFound, look_up
from bernstein_proxy.recording import Said, recorded
from bernstein_proxy.requests import BODY_BYTES_MAX
from bernstein_proxy.sending import Stream
from bernstein_proxy.tool_answers import readdressed, unasked

TYPE: Final = (("Content-Type", "application/octet-stream"),)
FROM_CLIENT, FROM_SERVER, SERVER_ENDED = b">", b"<", b"!"
# How long answers may take that a client left behind when it closed its end.
GRACE_SECONDS: Final = 1.0
_HEAD_BYTES_MAX: Final = 16
CLOSED: Final = f"{CODE}: the lane is closed since its first miss; nothing more is answered"


class Broken(Exception):
    """What the client may not see is not stored, or the server broke off in the recording."""


class Out(Protocol):
    """Where the client reads."""

    async def write(self, line: bytes) -> None: ...
    async def finish(self, end: End) -> None: ...


async def serve_pipe(request: web.Request, lane: Lane, name: str) -> web.StreamResponse:
    """One life of a tool server."""
    out, path = Stream(request), f"{MCP_PATH}{name}"
    side: Recording | Replay = (
        Recording(lane, path, out) if lane.replay is None else Replay(lane, path, out)
    )
    mode = "record" if lane.replay is None else "replay"
    end = End.COMPLETE
    await out.start(200, TYPE)
    try:
        await out.write(spelled({"mode": mode}).encode() + b"\n")
        async for kind, line in _frames(request.content):
            await side.take(kind, line)
        await side.finish()
    except Broken:
        end = End.ABORTED
    finally:
        side.close()
    await out.finish(end)
    return out.response


async def _frames(reader: StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Kind and line of each frame; a frame that breaks off is none."""
    while head := await reader.readline():
        kind, size = head[:1], head[1:].strip()
        if len(head) > _HEAD_BYTES_MAX or not size.isdigit() or int(size) > BODY_BYTES_MAX:
            return
        try:
            yield kind, await reader.readexactly(int(size))
        except asyncio.IncompleteReadError:
            return


class Recording:
    """Keeps what goes by."""

    def __init__(self, lane: Lane, path: str, out: Out) -> None:
        self._lane = lane
        self._path = path
        self._out = out
        self._transcript = Transcript(lane.arrive_at_tool, asyncio.get_running_loop().time)

    async def take(self, kind: bytes, line: bytes) -> None:
        if kind == FROM_CLIENT:
            await self._keep(self._transcript.asked(line))
        elif kind == FROM_SERVER:
            await self._keep(self._transcript.said(line))
            await self._out.write(line)
        elif kind == SERVER_ENDED:
            for left in self._transcript.ended(End.ABORTED):
                await self._keep(left)

    async def finish(self) -> None:
        """Nothing waits for an answer: the client closed its end, and the server is gone."""

    def close(self) -> None:
        for left in self._transcript.ended(End.CLIENT_GONE):
            _ = self._lane.store(left.seq, partial(self._recorded, left))

    async def _keep(self, said: Asked | None) -> None:
        if said is None:
            return
        kept = await asyncio.shield(self._lane.store(said.seq, partial(self._recorded, said)))
        if kept is None:
            raise Broken

    def _recorded(self, asked: Asked) -> Recorded:
        body = b"".join(asked.pieces)
        whole = HttpRequest(asked.method, self._path, (), (), asked.request)
        answer = Answer(0, body_of(body), asked.end, None, "")
        return recorded(self._lane, asked.seq, whole, Said(answer, body, (), asked.chunks))


class Replay:
    """Says what the server said."""

    def __init__(self, lane: Lane, path: str, out: Out) -> None:
        assert lane.replay is not None
        self._lane = lane
        self._replay = lane.replay
        self._path = path
        self._out = out
        self._server = lane.tool_server(path)
        self._unasked = asyncio.create_task(self._say_unasked())
        self._saying: set[asyncio.Task[None]] = set()

    async def take(self, kind: bytes, line: bytes) -> None:
        message = message_of(line)
        if message is not None and message.method == PING and message.kind is Kind.REQUEST:
            await self._out.write(answer_to_ping(message) + b"\n")
            return
        if message is not None and message.kind is Kind.ANSWER:
            await self._server.client_answered(message.request_id)
        self._lane.arrive_at_tool()
        whole = HttpRequest(STDIO, self._path, (), (), line)
        found = await look_up(whole, self._lane, self._replay)
        if isinstance(found, NotFound):
            await self._server.close()
            await self._miss(found, message)
            return
        saying = asyncio.create_task(self._say(found, message))
        self._saying.add(saying)
        saying.add_done_callback(self._saying.discard)

    async def finish(self) -> None:
        if self._saying:
            await asyncio.wait(self._saying, timeout=GRACE_SECONDS)

    def close(self) -> None:
        for task in (*self._saying, self._unasked):
            task.cancel()

    async def _miss(self, found: NotFound, message: Message | None) -> None:
        if message is not None and message.kind is Kind.REQUEST:
            text = error_answer(message.request_id, found.text, found.key, found.code)
            await self._write(text + b"\n")

    async def _say(self, found: Found, asked: Message | None) -> None:
        """The lines of one exchange; a question to the client may hold it up."""
        exchange = found.exchange
        changed = await readdressed(self._lane, found, asked)
        for line in found.pieces():
            await self._write(changed.line(line) if changed else line)
            if not await self._server.may_go_on(exchange, line):
                return await self._miss(NotFound(CLOSED, CODE, exchange.key), asked)
        await self._server.taken(exchange)
        if exchange.answer.end is End.ABORTED:
            await self._out.finish(End.ABORTED)
        return None

    async def _say_unasked(self) -> None:
        while (row := await self._server.next_due()) is not None:
            if (found := await unasked(self._lane, row)) is None:
                return
            await self._write(found.body)

    async def _write(self, line: bytes) -> None:
        with suppress(ConnectionError):  # the client left: `close` comes next
            await self._out.write(line)
