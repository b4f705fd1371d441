"""`bernstein agent mcp -- SERVER`: a tool server whose traffic is recorded, or replayed."""

import hashlib
import os
import sys
from pathlib import Path

import click

from bernstein_client.agent_settings import LANE_VARIABLE
from bernstein_client.tool_bridge import ToolBridge
from bernstein_formats.errors import InvalidInput


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- SERVER...")
@click.option("--name", default="", help="What tells the server from others; else its command.")
def mcp(*, command: tuple[str, ...], name: str) -> int:
    """Stand in the place of a tool server's command in an agent's MCP configuration.

    Its lane is in BERNSTEIN_LANE, which `bernstein record` and `bernstein agent env` set; an agent
    that does not hand its environment on needs it in the server's configuration. Recording, SERVER
    runs and every line of both sides is kept; replaying, SERVER is not started.
    """
    lane_url = os.environ.get(LANE_VARIABLE, "")
    if not lane_url:
        raise InvalidInput(
            f"{LANE_VARIABLE} is not set, so nothing would be recorded: start the agent with"
            " `bernstein record -- AGENT`, and hand the variable on to the tool server"
        )
    bridge = ToolBridge(lane_url, name or name_of(command))
    return bridge.run(command, os.environ, sys.stdin.buffer, sys.stdout.buffer)


def name_of(command: tuple[str, ...]) -> str:
    """The program's name and what tells this command line from others."""
    digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape"))
    return f"{Path(command[0]).name}-{digest.hexdigest()[:8]}"
