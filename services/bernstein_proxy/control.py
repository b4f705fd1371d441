"""How lanes are opened and closed: a Unix socket, one JSON line a request, one an answer.

    {"do": "open", "run_id": …, "lane": …, "replay_run_id": "", "budget": 0,
     "in_order": false, "rows_at_end": false,
     "providers": [{"name", "base_url", "api_key"}]}   → {"ok": true, "base_url": …}
    {"do": "let_go"}                                   → {"ok": true}
    {"do": "close"}                                    → {"ok": true, "accounts": [one]}
    {"do": "leave"}                                    → {"ok": true}
    {"do": "latest_run"}                               → {"ok": true, "run_id": …}
    {"do": "close_run", "run_id": …}                   → {"ok": true, "accounts": […]}

It greets with a line of its own, so that a process that hangs is known by its silence. A lane ends
with its connection, whatever becomes of whoever opened it, unless that let go of it before.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from bernstein_formats.canonical import parse_json, spelled
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_proxy.lanes import Lane, Lanes, Wanted
from bernstein_proxy.upstream import upstream
from bernstein_runtime.refusal import refusal_of

LINE_BYTES_MAX: Final = 256 * 1024
GREETING: Final = {"ok": True}


class Control:
    """Serves the socket. `base_url` is where agents reach this process."""

    def __init__(self, lanes: Lanes, base_url: str) -> None:
        self._lanes = lanes
        self._base_url = base_url

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        connection = _Connection(self._lanes, self._base_url)
        try:
            await _say(writer, GREETING)
            while line := await _line(reader):
                await _say(writer, await connection.answer(line))
        except ConnectionError:
            pass  # it left
        finally:
            await connection.end()
            writer.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; empty at the end, and where a line is longer than any request."""
    try:
        return await reader.readline()
    except ValueError:
        return b""


async def _say(writer: asyncio.StreamWriter, answer: Mapping[str, object]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")  # noqa: TID251 - not evidence
    await writer.drain()


class _Connection:
    def __init__(self, lanes: Lanes, base_url: str) -> None:
        self._lanes = lanes
        self._base_url = base_url
        self._held: Lane | None = None

    async def answer(self, line: bytes) -> Mapping[str, object]:
        try:
            request = parse_json(line)
            if not isinstance(request, dict):
                raise InvalidInput("a request is a JSON object")
            return {"ok": True, **await self._done(request)}
        except BernsteinError as error:
            return {"ok": False, **refusal_of(error)}

    async def end(self) -> None:
        """Close what was held by the connection."""
        if self._held is not None:
            lane, self._held = self._held, None
            await self._lanes.close(lane, is_left=True)

    async def _done(self, request: dict[str, Any]) -> dict[str, object]:
        match request.get("do"):
            case "open" if self._held is None:
                self._held = await self._lanes.open(_wanted(request))
                return {"base_url": f"{self._base_url}/l/{self._held.token}"}
            case "let_go" if self._held is not None:
                self._held.is_held, self._held = False, None
                return {}
            case "close" if self._held is not None:
                lane, self._held = self._held, None
                return {"accounts": [await self._lanes.close(lane)]}
            case "leave" if self._held is not None:
                await self.end()
                return {}
            case "latest_run":
                return {"run_id": self._lanes.latest_run()}
            case "close_run":
                return {"accounts": await self._lanes.close_run(str(request.get("run_id")))}
        raise InvalidInput(f"{spelled(request.get('do'))[:40]} cannot be done here")


def _wanted(request: dict[str, Any]) -> Wanted:
    try:
        providers = [
            upstream(str(each["name"]), str(each["base_url"]), str(each["api_key"]))
            for each in request["providers"]
        ]
        return Wanted(
            run_id=str(request["run_id"]),
            lane=str(request["lane"]),
            replay_run_id=str(request["replay_run_id"]),
            budget=int(request["budget"]),
            in_order=request["in_order"] is True,
            rows_at_end=request["rows_at_end"] is True,
            upstreams={each.name: each for each in providers},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"no lane can be made of that: {type(error).__name__}") from error
