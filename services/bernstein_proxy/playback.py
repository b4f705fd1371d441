"""Replay mode: answers come from the recording alone; nothing is dialled."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiohttp import web

from bernstein_formats.errors import BernsteinError
from bernstein_formats.http_exchange import Answer, End, Envelope, Exchange, body_of
from bernstein_formats.http_key import HttpRequest, Keyed, keyed
from bernstein_formats.http_miss import CODE, error_status, miss_text, nearest
from bernstein_formats.http_replay import LaneReplay, MissKind, NoAnswer
from bernstein_proxy.lanes import Lane
from bernstein_proxy.requests import Asked, error_response, read_request
from bernstein_proxy.run_log import RecordedRun
from bernstein_proxy.sending import Stream

# Recorded requests that a miss is compared with.
COMPARED_MAX: Final = 200


async def play(
    request: web.Request, asked: Asked, lane: Lane, replay: LaneReplay
) -> web.StreamResponse:
    """Answer a request of a lane that replays."""
    lane.arrive()
    whole = lane.log.redactor.redacted(await read_request(request, asked))
    found = keyed(whole)
    taken = replay.take(found.key)
    assert isinstance(lane.log, RecordedRun)
    if isinstance(taken, NoAnswer):
        return await _miss(taken, whole, found, lane, replay)
    if taken.request != body_of(whole.body):
        lane.mask(found)
    try:
        envelope, body = await asyncio.to_thread(lane.log.answer, taken)
        await lane.log.served(taken)
    except BernsteinError as error:
        replay.missed()
        text = f"{error.reason}: {error.message}"
        lane.fail(text)
        return _error(whole, text, error.reason, found.key)
    return await _send(request, taken.answer, envelope, body)


async def _send(
    request: web.Request, answer: Answer, envelope: Envelope, body: bytes
) -> web.StreamResponse:
    """The recorded bytes, pieces and ending; an answer that the agent left is held open."""
    out, at = Stream(request), 0
    if answer.status:
        await out.start(answer.status, envelope.response_headers)
        for size, _ in envelope.chunks:
            await out.write(body[at : at + size])
            at += size
    if answer.end is End.CLIENT_GONE:
        # Ended from outside: by the agent that leaves as it left before, or by the lane's end.
        await asyncio.Event().wait()
    await out.finish(answer.end)
    return out.response


async def _miss(
    miss: NoAnswer, whole: HttpRequest, found: Keyed, lane: Lane, replay: LaneReplay
) -> web.Response:
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
    return _error(whole, text, CODE, found.key)


def _error(whole: HttpRequest, text: str, code: str, key: str) -> web.Response:
    protocol = whole.error_protocol
    return error_response(error_status(protocol), protocol, text, code, key=key)


def _compared(
    log: RecordedRun, replay: LaneReplay, whole: HttpRequest
) -> Iterator[tuple[Exchange, Keyed]]:
    """The lane's recorded requests, those to the same path first, keyed again."""
    ordered = sorted(replay.recorded, key=lambda each: (each.path != whole.path, each.seq))
    for each in islice(ordered, COMPARED_MAX):
        yield each, keyed(log.request(each))
