"""Replay mode: answers come from the recording alone; nothing is dialled."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aiohttp import web

from bernstein_formats.errors import BernsteinError
from bernstein_formats.http_exchange import Answer, End, Envelope, Exchange, body_of
from bernstein_formats.http_key import HttpRequest, Keyed, keyed
from bernstein_formats.http_miss import CODE, error_status, miss_text, nearest
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_replay import LaneReplay, MissKind, NoAnswer
from bernstein_formats.mcp_message import message_of
from bernstein_proxy.lanes import Lane
from bernstein_proxy.requests import Asked, error_response, read_request
from bernstein_proxy.run_log import RecordedRun
from bernstein_proxy.sending import Stream
from bernstein_runtime.metrics import REPLAY_MISSES

# Recorded requests that a miss is compared with.
COMPARED_MAX: Final = 200
# How long an answer waits for those that ended before it, where the order is kept.
TURN_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Found:
    """The recorded answer to a request."""

    exchange: Exchange
    envelope: Envelope
    body: bytes

    def pieces(self) -> Iterator[bytes]:
        """As they arrived."""
        at = 0
        for size, _ in self.envelope.chunks:
            yield self.body[at : at + size]
            at += size


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why there is none, for the agent to read."""

    text: str
    code: str
    key: str

    def response(self, whole: HttpRequest) -> web.Response:
        """In the protocol's own shape."""
        protocol = whole.error_protocol
        message = message_of(whole.body) if protocol is Protocol.MCP else None
        return error_response(
            error_status(protocol),
            protocol,
            self.text,
            self.code,
            key=self.key,
            request_id=message.request_id if message else None,
        )


async def play(
    request: web.Request, asked: Asked, lane: Lane, replay: LaneReplay
) -> web.StreamResponse:
    """Answer a request of a lane that replays."""
    lane.arrive()
    whole = await read_request(request, asked)
    found = await look_up(whole, lane, replay)
    if isinstance(found, NotFound):
        return found.response(whole)
    out = Stream(request)
    async with _turn(found.exchange, lane, replay):
        await _send(out, found)
    return await _finish(out, found.exchange.answer)


@asynccontextmanager
async def _turn(exchange: Exchange, lane: Lane, replay: LaneReplay) -> AsyncIterator[None]:
    """Where the order is kept: wait for the answers that ended before, but not for ever."""
    order = lane.order
    if order is None:
        yield
        return
    async with lane.turn:
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await lane.turn.wait_for(lambda: order.has_turn(exchange) or replay.is_latched)
        except TimeoutError:
            lane.late += 1
            lane.note(
                f"request {exchange.seq}: what ended before it was not asked for within"
                f" {TURN_SECONDS:g} s; it was answered out of its turn"
            )
    try:
        yield
    finally:
        async with lane.turn:
            order.give_out(exchange)
            lane.turn.notify_all()


async def look_up(whole: HttpRequest, lane: Lane, replay: LaneReplay) -> Found | NotFound:
    """The answer whose turn it is; it counts as used."""
    whole = lane.log.redactor.redacted(whole)
    asked = keyed(whole)
    taken = replay.take(asked.key)
    assert isinstance(lane.log, RecordedRun)
    if isinstance(taken, NoAnswer):
        return NotFound(await _miss(taken, whole, asked, lane, replay), CODE, asked.key)
    if taken.request != body_of(whole.body):
        lane.mask(asked)
    try:
        envelope, body = await asyncio.to_thread(lane.log.answer, taken)
        await lane.log.served(taken, lane.rows)
    except BernsteinError as error:
        replay.close()
        text = f"{error.reason}: {error.message}"
        lane.fail(text)
        return NotFound(text, error.reason, asked.key)
    return Found(taken, envelope, body)


async def _send(out: Stream, found: Found) -> None:
    """The recorded bytes and pieces."""
    status = found.exchange.answer.status
    if status:
        await out.start(status, found.envelope.response_headers)
        for piece in found.pieces():
            await out.write(piece)


async def _finish(out: Stream, answer: Answer) -> web.StreamResponse:
    """The recorded ending; an answer that the agent left is held open."""
    if answer.end is End.CLIENT_GONE:
        # Ended from outside: by the agent that leaves as it left before, or by the lane's end.
        await asyncio.Event().wait()
    await out.finish(answer.end)
    return out.response


async def _miss(
    miss: NoAnswer, whole: HttpRequest, found: Keyed, lane: Lane, replay: LaneReplay
) -> str:
    REPLAY_MISSES.add()
    near = None
    if miss.kind is MissKind.NOT_RECORDED:
        assert isinstance(lane.log, RecordedRun)
        compared = _compared(lane.log, replay, whole)
        try:
            near = await asyncio.to_thread(nearest, found, compared)
        except BernsteinError as error:
            lane.fail(f"{error.reason}: {error.message}")
    text = miss_text(miss, found, whole.protocol, lane.wanted.lane, near)
    if miss.kind is not MissKind.LATCHED:
        lane.fail(text)
    return text


def _compared(
    log: RecordedRun, replay: LaneReplay, whole: HttpRequest
) -> Iterator[tuple[Exchange, Keyed]]:
    """The lane's recorded requests, those to the same path first, keyed again."""
    ordered = sorted(replay.recorded, key=lambda each: (each.path != whole.path, each.seq))
    for each in islice(ordered, COMPARED_MAX):
        yield each, keyed(log.request(each))
