"""Letting old runs go once a new one is over (BERNSTEIN_REPLAY_RETENTION)."""

from bernstein_cli.output import remark
from bernstein_client.connection import Services
from bernstein_formats.errors import BernsteinError


def prune_runs(services: Services, keep: int) -> None:
    """Keep the newest runs, where a number is given; a run does not fail because old ones stay."""
    if not keep:
        return
    try:
        pruned = services.journal.prune_runs(keep, preview=False)
    except BernsteinError as error:
        remark(f"note: old runs stay: {error.message} [{error.reason}]")
        return
    for run_id in pruned.removed:
        remark(f"removed the run {run_id}; its seal and receipt stay")
