"""`bernstein admin import DIR`: whole runs, seals and receipts included, byte for byte."""

from pathlib import Path

import click

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services
from bernstein_formats.errors import BernsteinError, RunNotFound
from bernstein_importer.copying import copy_run
from bernstein_importer.source import find_source


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; repeatable.")
@sdd_dir_option
@json_option
def import_(*, folder: Path, run_ids: tuple[str, ...], sdd_dir: Path, as_json: bool) -> int:
    """Take in the runs of DIR, a state folder or a project, as `bernstein admin export` writes it.

    Every file of a run is taken as it is, its seal and receipts too. Nothing here is replaced: a
    file that is here with other bytes keeps them, and the run counts as failed (exit 1). What the
    peer still writes to is for `bernstein import`.
    """
    source = find_source(folder)
    require_folder(sdd_dir)
    there = source.run_ids()
    for run_id in run_ids:
        if run_id not in there:
            raise RunNotFound(f"{source.sdd_dir} has no run {run_id}", run_id=run_id)
    done: list[Printed] = []
    failed = 0
    with Services(sdd_dir) as services:
        for run_id in run_ids or there:
            try:
                copied = copy_run(source, services.copies, run_id)
            except BernsteinError as error:
                failed += 1
                remark(f"bernstein: {error.message} [{error.reason}]")
                done.append({"run_id": run_id, "reason": error.reason, "error": error.message})
                continue
            done.append({"run_id": run_id, "files": copied.files, "new_files": copied.new_files})
            if not as_json:
                say(f"imported {run_id}: {copied.files} files, {copied.new_files} of them new")
    if as_json:
        document({"source": str(source.sdd_dir), "runs": done})
    elif not done:
        say(f"{source.sdd_dir} has no run")
    return exit_codes.FAILED if failed else exit_codes.OK
