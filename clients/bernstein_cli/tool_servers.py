"""`--mcp NAME=URL`: tool servers at an address that a lane records."""

import re
from collections.abc import Callable
from typing import Any, Final

import click

from bernstein_client.recorder import Provider

_NAMED: Final = re.compile(r"([A-Za-z0-9._-]{1,64})=(https?://\S+)")


def tool_servers_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The agent reaches each at $BERNSTEIN_LANE/mcp/NAME."""
    return click.option(
        "--mcp",
        "tool_servers",
        multiple=True,
        metavar="NAME=URL",
        callback=_parsed,
        help="A tool server to be recorded at $BERNSTEIN_LANE/mcp/NAME; may be repeated.",
    )(command)


def _parsed(
    _: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> tuple[Provider, ...]:
    found = []
    for text in given:
        named = _NAMED.fullmatch(text)
        if named is None:
            raise click.BadParameter(f"{text!r} is not NAME=URL", param=option)
        found.append(Provider(f"mcp/{named[1]}", named[2], ""))
    return tuple(found)
