"""The agents' side: `/l/<lane>/<provider>/<rest>`, the same for recording and replaying."""

import asyncio
from typing import Final

from aiohttp import ClientSession, web

from bernstein_formats.http_protocol import Protocol
from bernstein_proxy.lanes import Lane, Lanes
from bernstein_proxy.playback import play
from bernstein_proxy.relay import relay
from bernstein_proxy.requests import (
    BODY_BYTES_MAX,
    TEXT_MAX,
    UNEXPECTED_PATH,
    Asked,
    Refused,
    asked_of,
    error_response,
    is_hello,
    refusal,
)
from bernstein_proxy.tool_http import record_tool, replay_tool
from bernstein_proxy.tool_pipe import serve_pipe

# Tool servers on standard input and output, as `bernstein agent mcp` reaches them.
TOOL_PIPES: Final = "mcp-stdio"
PATH: Final = "/l/{token}/{provider}{rest:/?.*}"


class Agents:
    """Answers agents. `session` reaches providers."""

    def __init__(self, lanes: Lanes, session: ClientSession) -> None:
        self._lanes = lanes
        self._session = session

    def app(self) -> web.Application:
        made = web.Application(client_max_size=BODY_BYTES_MAX)
        made.router.add_route("*", PATH, self._answer)
        return made

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        lane = self._lanes.find(request.match_info["token"])
        if lane is None:
            text = "LANE_CLOSED: no lane is open at this address; it ended with its agent"
            return error_response(404, Protocol.OTHER, text, "LANE_CLOSED")
        if is_hello(request):
            return web.Response()
        task = asyncio.current_task()
        assert task is not None
        lane.answering.add(task)
        try:
            return await self._in_lane(request, lane)
        except Refused as refused:
            if str(refused):
                # Cut afterwards: a part of a secret does not look like one.
                text = lane.log.redactor.redacted_text(str(refused))[:TEXT_MAX]
                lane.refuse(text, is_unexpected=refused.code == UNEXPECTED_PATH)
            return refused.response
        finally:
            lane.answering.discard(task)

    async def _in_lane(self, request: web.Request, lane: Lane) -> web.StreamResponse:
        if request.match_info["provider"] == TOOL_PIPES:
            return await serve_pipe(request, lane, request.match_info["rest"].strip("/"))
        asked = asked_of(request)
        if asked.protocol is Protocol.MCP:
            return await self._of_tool(request, asked, lane)
        _check_budget(asked, lane)
        if lane.replay is not None:
            return await play(request, asked, lane, lane.replay)
        _check_provider(asked, lane)
        return await relay(request, asked, lane, self._session)

    async def _of_tool(self, request: web.Request, asked: Asked, lane: Lane) -> web.StreamResponse:
        if lane.replay is not None:
            return await replay_tool(request, asked, lane, lane.replay, self._session)
        _check_provider(asked, lane)
        return await record_tool(request, asked, lane, self._session)


def _check_provider(asked: Asked, lane: Lane) -> None:
    if asked.provider not in lane.wanted.upstreams:
        text = f"PROVIDER_MISSING: this lane has no provider {asked.provider!r}"
        raise refusal(asked, text, "PROVIDER_MISSING")


def _check_budget(asked: Asked, lane: Lane) -> None:
    if not lane.has_budget():
        text = f"BUDGET_EXHAUSTED: the lane's budget of {lane.wanted.budget} calls is used up"
        raise refusal(asked, text, "BUDGET_EXHAUSTED")
