"""The options of `bernstein replay` that are about agents, and the command behind its `--`."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import click

from bernstein_cli.completion import REPLAY_VERBS

COMMAND: Final = "bernstein_cli.command"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What was given."""

    require_complete: bool = False
    unsafe_tools: bool = False
    work_tree: Path | None = None
    all_of: Path | None = None
    keep_order: bool = False

    @classmethod
    def taken_from(cls, members: dict[str, Any]) -> Self:
        """Take what is meant for agents out of all that was given."""
        return cls(**{each.name: members.pop(each.name) for each in fields(cls)})

    def given(self) -> str | None:
        """The first option that was given."""
        for name in (each.name for each in fields(self)):
            if getattr(self, name) != getattr(_NOTHING, name):
                return f"--{name.replace('_', '-')}"
        return None


class CommandBehindDashes(click.Command):
    """What stands behind RUN and `--` is a command of its own, kept in the context.

    Behind a verb, `--` only ends the options, as everywhere.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            return super().parse_args(ctx, args)
        at = args.index("--")
        left = super().parse_args(ctx, args[:at])
        if ctx.params["words"][:1] in [(verb,) for verb in REPLAY_VERBS]:
            ctx.params.clear()
            return super().parse_args(ctx, args)
        ctx.meta[COMMAND] = tuple(args[at + 1 :])
        return left


_NOTHING: Final = AgentOptions()
_OPTIONS: Final = (
    click.option(
        "--all",
        "all_of",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Replay every recorded agent below this folder with its own command.",
    ),
    click.option(
        "--require-complete",
        is_flag=True,
        help="COMMAND: exit 11 when recorded calls were not asked for.",
    ),
    click.option(
        "--work-tree",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="COMMAND: keep the files that it worked on in this new folder.",
    ),
    click.option(
        "--keep-order",
        is_flag=True,
        help="COMMAND: answer in the recorded order; for sub-agents that share a lane.",
    ),
    click.option(
        "--unsafe-tools",
        is_flag=True,
        help="COMMAND: do not lock it in; its tools reach these files and the network.",
    ),
)


def agent_options(function: Function) -> Function:
    """Give a command these options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
