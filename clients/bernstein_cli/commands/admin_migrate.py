"""`bernstein admin migrate`: make or update the tables that services work with."""

import os
from pathlib import Path

import click

from bernstein_cli.fleet_place import refuse_in_fleet
from bernstein_cli.output import document, say
from bernstein_cli.services_options import json_option, places_of, sdd_dir_option
from bernstein_cli.store_process import ask_store
from bernstein_runtime.config import StoreConfig, load_table


@click.command()
@click.option(
    "--owner",
    default="",
    metavar="USER",
    help="Who owns the tables.  [default: the user of [store] url]",
)
@click.option(
    "--owner-password-file",
    default="",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with that user's password.",
)
@sdd_dir_option
@json_option
def migrate(*, owner: str, owner_password_file: Path, sdd_dir: Path, as_json: bool) -> int:
    """Bring the tables of the database in [store] url up to date, all or nothing.

    Services check this when they start, and change nothing themselves. Those of the release before
    go on working. The user of [store] url may use the tables afterwards; best let another one own
    them.
    """
    store = load_table(StoreConfig, "store", places_of(sdd_dir).state_dir, os.environ)
    if not store.url:
        refuse_in_fleet(sdd_dir, "`bernstein admin migrate`")
    arguments = []
    if owner:
        arguments.append(f"--owner={owner}")
    if owner_password_file != Path():
        arguments.append(f"--owner-password-file={owner_password_file.absolute()}")
    done = ask_store("migrate", sdd_dir, arguments)
    if as_json:
        document({"place": done["place"], "applied": done["applied"]})
        return 0
    for name in done["applied"]:
        say(f"applied {name}")
    say(f"{done['place']} is up to date")
    return 0
