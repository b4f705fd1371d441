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
from mcp.client.sse import sse_client
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
elif sys.argv[1] == "sse":
    server.run("sse", port=int(sys.argv[2]), sse_path="/mcp")
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


def test_the_older_way_to_an_address_is_replayed_too(services: Services, server: Path) -> None:
    def spoken(held: Held) -> list[Any]:
        return asyncio.run(conversation(sse_client(f"{held.base}/mcp/workshop"), "legacy"))

    with listening(server, "sse") as url, lane(services, url=url) as recording:
        recorded = spoken(recording)
    with lane(services, replay=recording.run_id) as replaying:
        replayed = spoken(replaying)

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


# --- the command ----------------------------------------------------------------------------------

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}\n'
# Reads one request and ends without an answer.
BREAKS = "import sys; sys.stdin.readline(); sys.exit(3)"


def wrapped(base: str, *command: str) -> tuple[int, bytes, bytes]:
    """Exit code and both outputs of a client that asks once and stays."""
    with subprocess.Popen(
        [sys.executable, "-m", "bernstein_cli", "agent", "mcp", "--", *command],
        env={**os.environ, "BERNSTEIN_LANE": base},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(CALL)
        shown, told = process.stdout.read(), process.stderr.read()
    return process.returncode, shown, told


def test_without_a_lane_no_server_is_started(services: Services) -> None:
    with lane(services) as held:
        absent = wrapped(held.base, "no-such-program")
    closed, none, odd = (wrapped(base, "true") for base in (held.base, "", "ftp://x"))

    assert [code for code, _, _ in (absent, closed, none, odd)] == [1, 1, 1, 1]
    assert b"cannot run 'no-such-program'" in absent[2]
    assert b"LANE_CLOSED" in closed[2]
    assert b"BERNSTEIN_LANE is not set" in none[2]
    assert b"is no address of a lane" in odd[2]


def test_a_server_that_cannot_start_does_not_start_in_the_replay_either(
    services: Services,
) -> None:
    with lane(services) as recording:
        recorded = wrapped(recording.base, "no-such-program")
    with lane(services, replay=recording.run_id) as replaying:
        replayed = wrapped(replaying.base, "no-such-program")

    assert recorded[:2] == replayed[:2] == (1, b"")
    assert recording.account.recorded == 1
    assert (replaying.account.misses, replaying.account.unused_count) == (0, 0)


def test_a_server_that_broke_off_breaks_off_in_the_replay(services: Services) -> None:
    command = (sys.executable, "-c", BREAKS)
    with lane(services) as recording:
        recorded = wrapped(recording.base, *command)
    with lane(services, replay=recording.run_id) as replaying:
        replayed = wrapped(replaying.base, *command)

    assert recorded[:2] == (3, b"")
    assert replayed[:2] == (1, b"")
    assert recording.account.cut == replaying.account.cut == 1
    assert (replaying.account.misses, replaying.account.unused_count) == (0, 0)
