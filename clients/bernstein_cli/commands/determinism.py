"""`bernstein determinism`: turns of agents, checked, replayed, verified, compared."""

from importlib.util import find_spec

import click

from bernstein_cli.lazy import LazyGroup
from bernstein_formats.errors import Unavailable

_MODULE = "bernstein_cli.determinism_commands"
COMMANDS = {
    "check": (f"{_MODULE}:check", "Say which contract slipped between two runs."),
    "replay-turn": (f"{_MODULE}:replay_turn", "Replay recorded turns and compare every link."),
    "verify": (f"{_MODULE}:verify", "Is a run's ledger of turns whole and in order?"),
    "compare": (f"{_MODULE}:compare", "Did scored turns get better or worse?"),
    "diff": (f"{_MODULE}:diff", "Where do two runs of turns part?"),
}


class _Group(LazyGroup):
    """Says what is missing where the extra is not installed."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and find_spec("ulid") is None:
            raise Unavailable(
                "the determinism library is not installed: pip install"
                " 'bernstein-services[determinism]'"
            )
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group, lazy=COMMANDS)
def determinism() -> None:
    """Same input, same prompt, same answer, same verdicts, same state: checked, not hoped for.

    For runs that were recorded with the library bernstein_determinism.
    """
