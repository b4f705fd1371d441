"""`bernstein verify`: receipts are ours; every other form of it is the peer's."""

import click

from bernstein_cli.lazy import LazyGroup

COMMANDS = {
    "run": ("bernstein_cli.commands.verify_run:verify_run", "Sign the receipt of a run."),
    "receipt": (
        "bernstein_cli.commands.verify_receipt:verify_receipt",
        "Verify a receipt, offline.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, invoke_without_command=True)
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Sign the receipt of a run, or verify one.

    Other forms of `verify` (a path, `legacy`, its own options) are handed over to the peer.
    """
    if ctx.invoked_subcommand is None:
        from bernstein_cli.handing_over import hand_over_line  # noqa: PLC0415 - slow to load

        hand_over_line(ctx, "verify without a command")
