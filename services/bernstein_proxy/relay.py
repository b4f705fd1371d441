"""Record mode: a request goes to the provider, each piece of the answer at once to the agent.

The bytes are passed on as they are and kept as they are. The agent sees the end of a stream only
when the exchange is stored; where that fails it sees a broken stream.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import ClientError, ClientResponse, ClientSession, web

from bernstein_client.exchanges import Recorded
from bernstein_formats.errors import ProviderFailed
from bernstein_formats.http_exchange import Answer, End, body_of
from bernstein_formats.http_key import HttpRequest, Pairs
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.sse_end import StreamEnd, whole_end
from bernstein_proxy.lanes import Lane
from bernstein_proxy.recording import Said, recorded
from bernstein_proxy.requests import Asked, read_request
from bernstein_proxy.sending import Stream

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
# The answer of a request that is being sent.
Sending = Awaitable[ClientResponse]


@dataclass(slots=True)
class Got:
    """What came back so far."""

    clock: Callable[[], float]
    began: float
    protocol: Protocol
    status: int = 0
    headers: Pairs = ()
    encoding: str = ""
    pieces: list[bytes] = field(default_factory=list)
    chunks: list[tuple[int, float]] = field(default_factory=list)
    size: int = 0
    stream: StreamEnd | None = None
    # The answer of a tool server, which the agent acts on when it has come and not when the stream
    # ends: kept back until it is stored.
    held: bytes = b""

    def take(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)
        self.chunks.append((len(piece), round((self.clock() - self.began) * 1000, 1)))
        if self.protocol is Protocol.MCP and self.stream is not None:
            self.stream.feed(piece)
            self.held = piece if self.stream.is_finished else b""

    def answer(self, body: bytes, end: End) -> Answer:
        is_finished, stop_reason = self._seen_end(body)
        if end is End.CLIENT_GONE and is_finished:
            end = End.COMPLETE  # it had all, and did not wait for the connection to say so
        return Answer(
            status=self.status,
            body=body_of(body),
            end=end,
            is_finished=is_finished,
            stop_reason=stop_reason,
        )

    def _seen_end(self, body: bytes) -> tuple[bool | None, str]:
        if self.stream is not None:
            if self.protocol is not Protocol.MCP:
                self.stream.feed(body)
            return self.stream.is_finished, self.stream.stop_reason
        return whole_end(self.protocol, body, self.encoding)


async def relay(
    request: web.Request, asked: Asked, lane: Lane, session: ClientSession
) -> web.StreamResponse:
    """Answer a request of a lane that records, and store the exchange whatever becomes of it."""
    is_tool = asked.protocol is Protocol.MCP
    seq = lane.arrive_at_tool() if is_tool else lane.arrive()
    whole = await read_request(request, asked)
    loop = asyncio.get_running_loop()
    got = Got(loop.time, loop.time(), whole.protocol)
    out = Stream(request)
    end = End.CLIENT_GONE
    try:
        end = await _pass_on(out, sending(whole, asked, lane, session), got)
    except ConnectionError:
        pass  # the agent left
    except ProviderFailed as error:
        end = End.ABORTED
        lane.note(f"request {seq}: {error.message}")
    finally:
        storing = lane.store(seq, partial(_recorded, lane, seq, whole, got, end))
    is_stored = await asyncio.shield(storing) is not None
    if is_stored and got.held:
        await out.write(got.held)
    await out.finish(end if is_stored else End.ABORTED)
    return out.response


def sending(whole: HttpRequest, asked: Asked, lane: Lane, session: ClientSession) -> Sending:
    """The request to the lane's provider."""
    upstream = lane.wanted.upstreams[asked.provider]
    return session.request(
        whole.method,
        upstream.url(asked.rest, asked.query),
        headers=upstream.headers(whole.headers),
        data=whole.body or None,
        allow_redirects=False,
        proxy=upstream.proxy,
    )


async def _pass_on(out: Stream, sending: Sending, got: Got) -> End:
    """Raises ConnectionError when the agent left, ProviderFailed when there is no answer."""
    try:
        response = await sending
    except (ClientError, TimeoutError, OSError) as error:
        raise ProviderFailed(f"the provider did not answer ({type(error).__name__})") from error
    async with response:
        _begin(response, got)
        await out.start(got.status, got.headers)
        return await _pieces(out, response, got)


def _begin(response: ClientResponse, got: Got) -> None:
    got.status = response.status
    got.headers = tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
    )
    got.encoding = response.headers.get("Content-Encoding", "")
    if response.content_type == "text/event-stream":
        got.stream = StreamEnd(got.protocol, got.encoding)


async def _pieces(out: Stream, response: ClientResponse, got: Got) -> End:
    pieces = response.content.iter_any()
    while True:
        # Apart from the writing: both sides fail with the same kinds of error.
        try:
            piece = await anext(pieces, None)
        except (ClientError, TimeoutError, OSError):
            return End.ABORTED
        if piece is None:
            return End.COMPLETE
        got.take(piece)
        if got.size > ANSWER_BYTES_MAX:
            return End.ABORTED
        if got.held:
            return End.COMPLETE
        await out.write(piece)


def _recorded(lane: Lane, seq: int, whole: HttpRequest, got: Got, end: End) -> Recorded:
    body = b"".join(got.pieces)
    said = Said(got.answer(body, end), body, got.headers, tuple(got.chunks), got.encoding)
    if got.stream is not None and got.stream.trouble:
        lane.note(f"request {seq}: the end of its answer was not seen: {got.stream.trouble}")
    return recorded(lane, seq, whole, said)
