"""`bernstein admin export RUN DIR`: the very bytes that a store of files would hold."""

import os
from pathlib import Path

import click

from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document, say
from bernstein_cli.run_copy import write_run
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@sdd_dir_option
@json_option
def export(*, run_id: str, folder: Path, sdd_dir: Path, as_json: bool) -> int:
    """Write all files of RUN to DIR, which is a state folder then like any other.

    They are what a store of files holds, byte for byte: `bernstein replay RUN --verify --offline
    --sdd-dir DIR` reads them. A run that is in DIR already stays as it is (exit 1).
    """
    require_folder(sdd_dir)
    with Services(sdd_dir) as services:
        run_id = services.journal.get_run(run_id).run_id
        names = write_run(run_id, services.copies.export_run(run_id), folder)
    if as_json:
        document({"run_id": run_id, "folder": os.path.realpath(folder), "files": list(names)})
    else:
        say(f"exported {run_id}: {len(names)} files in {folder}")
    return 0
