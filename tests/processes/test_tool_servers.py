"""Tool servers over the official SDK: recorded, and replayed with the server gone."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from bernstein_client.connection import Services
from bernstein_client.proxy import LaneAccount, LaneWanted, ProxyClient
from bernstein_client.recorder import Provider

pytestmark = pytest.mark.processes

SERVER = """
import secrets, sys
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("workshop")

class Colour(BaseModel):
    colour: str

@server.tool()
async def add(a: int, b: int) -> str:
    return f"{a + b} {secrets.token_hex(8)}"

@server.tool()
async def slow(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.report_progress(2, 2, "done")
    return secrets.token_hex(8)

@server.tool()
async def paint(ctx: Context) -> str:
    answer = await ctx.elicit("which colour?", Colour)
    return f"{answer.data.colour} {secrets.token_hex(8)}"

@server.tool()
async def grow(ctx: Context) -> str:
    await ctx.session.send_tool_list_changed()
    return secrets.token_hex(8)

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json")
"""


async def painted(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"colour": "blue"})


async def conversation(server: Any, mode: Any, numbers: tuple[int, ...] = (1, 1, 2)) -> list[Any]:
    """All that a client saw."""
    seen: list[Any] = []
    has_grown = asyncio.Event()

    async def heard(message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            has_grown.set()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with Client(
        server, mode=mode, elicitation_callback=painted, message_handler=heard, cache=None
    ) as client:
        seen.append([tool.name for tool in (await client.list_tools()).tools])
        seen += [await text_of(client, "add", {"a": number, "b": 1}) for number in numbers]
        seen.append(await text_of(client, "slow", {}, progressed))
        if mode == "legacy":  # later versions of the protocol have no questions to clients
            seen.append(await text_of(client, "paint", {}))
            grown = await text_of(client, "grow", {})
            if "REPLAY_MISS" not in grown:
                await asyncio.wait_for(has_grown.wait(), 30)
            seen.append(grown)
        seen.append(await text_of(client, "absent", {}))
    return seen


async def text_of(client: Client, tool: str, arguments: Any, progressed: Any = None) -> Any:
    try:
        found = await client.call_tool(tool, arguments, progress_callback=progressed)
    except MCPError as error:
        return str(error)
    return [getattr(part, "text", "") for part in found.content]


class Held:
    """A lane; `account` is there once it is closed."""

    def __init__(self, run_id: str, base: str) -> None:
        self.run_id = run_id
        self.base = base
        self.account: LaneAccount

    def pipe(self, server: Path) -> StdioServerParameters:
        command = ["-m", "bernstein_cli", "agent", "mcp", "--name", "workshop", "--"]
        return StdioServerParameters(
            command=sys.executable,
            args=[*command, sys.executable, str(server), "stdio"],
            env={"BERNSTEIN_LANE": self.base, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        )


@contextmanager
def lane(services: Services, replay: str = "", url: str = "") -> Iterator[Held]:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "agent_started", {})
    providers = (Provider("mcp/workshop", url, ""),) if url else ()
    with ProxyClient(services.supervisor) as proxy:
        held = Held(run_id, proxy.open_lane(LaneWanted(run_id, "agent", replay, 0, providers)))
        yield held
        held.account = proxy.close_lane()
    services.journal.finish_run(run_id)


def heads(services: Services, *run_ids: str) -> set[str]:
    return {services.journal.verify_run(run_id).head_hash for run_id in run_ids}


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "workshop.py"
    path.write_text(SERVER)
    return path


@contextmanager
def listening(server: Path, kind: str) -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(server), kind, str(port)],
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                continue
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_on_a_pipe_is_replayed_without_being_started(
    services: Services, server: Path, mode: str
) -> None:
    with lane(services) as recording:
        recorded = asyncio.run(conversation(recording.pipe(server), mode))
    server.unlink()
    with lane(services, replay=recording.run_id) as replaying:
        replayed = asyncio.run(conversation(replaying.pipe(server), mode))

    account = replaying.account
    assert replayed == recorded
    assert (account.misses, account.failures, account.unused_count) == (0, (), 0)
    assert account.served == recording.account.recorded > 6
    assert len(heads(services, recording.run_id, replaying.run_id)) == 1


@pytest.mark.parametrize("kind", ["json", "events"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_at_an_address_is_replayed_when_it_is_gone(
    services: Services, server: Path, mode: str, kind: str
) -> None:
    with listening(server, kind) as url, lane(services, url=url) as recording:
        recorded = asyncio.run(conversation(f"{recording.base}/mcp/workshop", mode))
    with lane(services, replay=recording.run_id) as replaying:
        replayed = asyncio.run(conversation(f"{replaying.base}/mcp/workshop", mode))

    account = replaying.account
    assert replayed == recorded
    assert (account.misses, account.failures, account.unused_count) == (0, (), 0)
    assert len(heads(services, recording.run_id, replaying.run_id)) == 1


@pytest.mark.parametrize("kind", ["stdio", "events"])
def test_drift_misses_in_the_protocols_own_shape_and_closes_the_lane(
    services: Services, server: Path, kind: str
) -> None:
    def asked(held: Held, numbers: tuple[int, ...]) -> list[Any]:
        target = held.pipe(server) if kind == "stdio" else f"{held.base}/mcp/workshop"
        return asyncio.run(conversation(target, "legacy", numbers))

    with listening(server, "events") as url, lane(services, url=url) as recording:
        asked(recording, (1,))
    with lane(services, replay=recording.run_id) as drifting:
        _, drifted, *after = asked(drifting, (7,))
    with lane(services, replay=recording.run_id) as repeating:
        _, first, used_up, *_ = asked(repeating, (1, 1))

    assert "REPLAY_MISS" in drifted
    assert "method tools/call add" in drifted
    assert "$.body.json.params.arguments.a (recorded 1, asked 7)" in drifted
    assert all("closed since its first miss" in each for each in after)
    assert first[0].startswith("2 ")
    assert "1 of 1 answers are used up" in used_up
    assert drifting.account.misses == 1 + len(after)
    assert drifting.account.unused_count > 3
