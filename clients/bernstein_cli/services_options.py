"""What all `services` commands take."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bernstein_runtime.places import Places, places_for
from bernstein_runtime.supervisor import Supervisor, supervisor_for

SERVICES = ("journal", "recorder", "rederiver", "signer")

Command = Callable[..., Any]


def sdd_dir_option(command: Command) -> Command:
    return click.option(
        "--sdd-dir",
        default=".sdd",
        show_default=True,
        type=click.Path(path_type=Path),
        help="The state folder.",
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")(
        command
    )


def places_of(sdd_dir: Path) -> Places:
    return places_for(sdd_dir, os.environ)


def supervisor_of(sdd_dir: Path) -> Supervisor:
    return supervisor_for(places_of(sdd_dir))
