"""`bernstein services accept-loss`: go on with a log whose end is gone, on record."""

from pathlib import Path

import click

from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document, say
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services
from bernstein_client.values import LogKind


@click.command()
@click.option("--audit", is_flag=True, help="The audit log.")
@click.option("--spine", metavar="RUN", shell_complete=complete_runs, help="A run's spine.")
@click.option("--journal", metavar="RUN", shell_complete=complete_runs, help="A run's journal.")
@click.option("--steps", metavar="AGENT", help="An agent's step journal.")
@click.option("--why", required=True, metavar="TEXT", help="What you know of it; kept on record.")
@sdd_dir_option
@json_option
def accept_loss(
    *,
    audit: bool,
    spine: str | None,
    journal: str | None,
    steps: str | None,
    why: str,
    sdd_dir: Path,
    as_json: bool,
) -> int:
    """Go on with what is left of a log from whose end acknowledged rows are gone [ROWS_MISSING].

    Look for a copy first: restored rows need no acceptance. The loss and your words stay on
    record, in the audit log and in every later verification. Exit codes: 0 accepted, or nothing is
    missing; 1 failed; 2 wrong usage.
    """
    named = {LogKind.SPINE: spine, LogKind.JOURNAL: journal, LogKind.STEPS: steps}
    chosen = [(kind, text) for kind, text in named.items() if text is not None]
    chosen += [(LogKind.AUDIT, "")] if audit else []
    if len(chosen) != 1:
        raise click.UsageError("name one log: --audit, --spine RUN, --journal RUN or --steps AGENT")
    require_folder(sdd_dir)
    with Services(sdd_dir) as services:
        lost = services.journal.accept_loss(*chosen[0], why)
    if as_json:
        document({"lost": list(lost)})
    else:
        for line in lost or ("nothing is missing",):
            say(f"accepted: {line}" if lost else line)
    return 0
