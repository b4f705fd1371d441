"""`bernstein services seal --abandoned RUN...`: end runs that nobody writes to any more."""

from pathlib import Path

import click

from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import Printed, document, say
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services


@click.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_runs)
@click.option(
    "--abandoned",
    is_flag=True,
    required=True,
    help="You are sure that nothing will be appended to these runs.",
)
@sdd_dir_option
@json_option
def seal(*, run_ids: tuple[str, ...], abandoned: bool, sdd_dir: Path, as_json: bool) -> int:
    """Seal runs that crashed or were imported, as they are; nothing can be appended afterwards.

    A sealed run can be verified against its seal, and is one that `services prune` may remove.
    """
    require_folder(sdd_dir)
    sealed: list[Printed] = []
    with Services(sdd_dir) as services:
        for run_id in run_ids:
            finished = services.journal.finish_run(run_id)
            sealed.append(
                {
                    "run_id": run_id,
                    "head_hash": finished.head_hash_hex,
                    "row_count": finished.row_count,
                }
            )
            if not as_json:
                say(f"sealed {run_id}: {finished.row_count} rows, head {finished.head_hash_hex}")
    if as_json:
        document({"sealed": sealed})
    return 0
