"""`bernstein session`: forks and branches of recorded sessions; the rest of it is the peer's."""

import click

from bernstein_cli.lazy import LazyGroup

COMMANDS = {
    "fork": (
        "bernstein_cli.commands.session_fork:fork",
        "Fork a session into a worktree of its own.",
    ),
    "branches": (
        "bernstein_cli.commands.session_branches:branches",
        "Show, and take apart, a journal that two writers have extended.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def session() -> None:
    """Fork recorded sessions. `session list`, `show` and `replay` are handed over to the peer."""
