"""`bernstein services`: the background processes of a project folder."""

import click

from bernstein_cli.lazy import LazyGroup

_MODULE = "bernstein_cli.commands.services_"
COMMANDS = {
    "status": (f"{_MODULE}status:status", "Show what runs."),
    "start": (f"{_MODULE}start:start", "Start services now instead of when they are needed."),
    "stop": (f"{_MODULE}start:stop", "Stop all; what was acknowledged is finished first."),
    "logs": (f"{_MODULE}logs:logs", "Show what services wrote to their logs."),
    "init": (f"{_MODULE}start:init", "Make the state folder and the key that seals runs."),
    "seal": (f"{_MODULE}seal:seal", "Seal runs that were left unfinished."),
    "prune": (f"{_MODULE}prune:prune", "Let the oldest runs go; seals and receipts stay."),
    "accept-loss": (f"{_MODULE}accept_loss:accept_loss", "Go on with a log whose end is gone."),
    "doctor": (f"{_MODULE}doctor:doctor", "Check everything; say what to do."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def services() -> None:
    """See, stop and check the background services of a project.

    Commands start them when they need them; they end by themselves when nobody does.
    """
