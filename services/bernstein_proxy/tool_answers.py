"""What replays of tool servers share: the request an answer was recorded for, and unasked rows."""

import asyncio

from bernstein_formats.errors import BernsteinError
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.http_replay import NoAnswer
from bernstein_formats.mcp_message import Message, Readdressed, message_of
from bernstein_proxy.lanes import Lane
from bernstein_proxy.playback import Found
from bernstein_proxy.run_log import RecordedRun


async def readdressed(lane: Lane, found: Found, asked: Message | None) -> Readdressed | None:
    """How the recorded answer is told to who asks; None: as it is."""
    assert isinstance(lane.log, RecordedRun)
    try:
        request = await asyncio.to_thread(lane.log.request, found.exchange)
    except BernsteinError as error:
        lane.fail(f"{error.reason}: {error.message}")
        return None
    recorded = message_of(request.body)
    if recorded is None or asked is None:
        return None
    made = Readdressed(recorded, asked)
    return None if made.changes_nothing else made


async def unasked(lane: Lane, row: Exchange) -> Found | None:
    """What the server said unasked; None once the lane is closed."""
    assert lane.replay is not None
    assert isinstance(lane.log, RecordedRun)
    taken = lane.replay.take_unasked(row.key)
    if isinstance(taken, NoAnswer):
        return None
    try:
        envelope, body = await asyncio.to_thread(lane.log.answer, taken)
        await lane.log.served(taken, lane.rows)
    except BernsteinError as error:
        lane.replay.close()
        lane.fail(f"{error.reason}: {error.message}")
        return None
    return Found(taken, envelope, body)
