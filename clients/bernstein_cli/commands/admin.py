"""`bernstein admin`: what the operator of a project or of a fleet does to it."""

import click

from bernstein_cli.lazy import LazyGroup

_MODULE = "bernstein_cli.commands.admin_"
COMMANDS = {
    "migrate": (f"{_MODULE}migrate:migrate", "Bring a database's tables up to date."),
    "export": (f"{_MODULE}export:export", "Write a run's files, byte for byte, to a folder."),
    "import": (f"{_MODULE}import:import_", "Take in whole runs, byte for byte, from a folder."),
    "quarantine": (f"{_MODULE}quarantine:quarantine", "List and stop what a caller changed."),
    "pki": (f"{_MODULE}pki:pki", "Make certificates for a fleet, by a small private CA."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def admin() -> None:
    """Look after what runs are kept in and, in a fleet, after who may reach them."""
