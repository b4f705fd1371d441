"""`bernstein services prune`: let old runs go, or see first which ones would."""

from pathlib import Path

import click

from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import YELLOW, document, remark, say
from bernstein_cli.run_environment import odd_values, read_run_environment
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services


@click.command()
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    help="How many of the newest runs stay.  [default: BERNSTEIN_REPLAY_RETENTION]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@sdd_dir_option
@json_option
def prune(*, keep: int | None, dry_run: bool, sdd_dir: Path, as_json: bool) -> int:
    """Remove the oldest runs of a project; their seals and receipts stay.

    A run that is not sealed, is being read, or is needed by a replay stays, and so does one whose
    folder is a link. Nothing outside a run's own folder is touched.
    """
    if not keep:
        for text in odd_values():
            remark(f"warning: {text}", YELLOW)
    keep = keep or read_run_environment().keep_runs
    if not keep:
        raise click.UsageError("say how many runs stay: --keep N, or BERNSTEIN_REPLAY_RETENTION=N")
    require_folder(sdd_dir)
    with Services(sdd_dir) as services:
        pruned = services.journal.prune_runs(keep, preview=dry_run)
    if as_json:
        document(
            {
                "dry_run": dry_run,
                "keep": keep,
                "removed": list(pruned.removed),
                "kept": [{"run_id": run_id, "reason": why} for run_id, why in pruned.kept],
                "left_count": pruned.left_count,
            }
        )
        return 0
    for run_id in pruned.removed:
        say(f"{'would remove' if dry_run else 'removed'} {run_id}")
    for run_id, why in pruned.kept:
        remark(f"kept {run_id}: {why}")
    if not pruned.removed:
        say("No run is to be removed.")
    return 0
