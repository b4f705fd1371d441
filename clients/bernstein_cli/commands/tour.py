"""`bernstein tour`: the main job from end to end, on a scripted model, with nothing to set up."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from bernstein_cli.output import remark, say
from bernstein_formats.errors import BernsteinError, InvalidInput, StoreFailed
from bernstein_runtime.places import places_for
from bernstein_tour.tour import Tour

STATE_FOLDER = ".sdd"


@click.command("tour")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take the tour in this new or empty folder, and leave everything there.",
)
def tour(keep: Path | None) -> None:
    """Record a run, replay it without a model, verify, re-derive, sign and verify it offline.

    Each command is shown before it is run and held to what it says; exit 1 at the first that does
    not. Needs no account and no network, and leaves nothing behind.
    """
    with _kept_folder(keep) if keep is not None else _passing_folder() as project:
        say(f"A tour of bernstein, in {project}")
        try:
            Tour(project, say).take()
        except BernsteinError:
            say()
            say("The tour stops here: this step did not do what it says.")
            raise
    say()
    say("Every step did what it says.")
    if keep is None:
        remark("nothing was left behind; --keep DIR leaves the project for a closer look")
    else:
        remark(f"see {project / 'README.md'}; `cd {project}` and try the commands yourself")


@contextmanager
def _kept_folder(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be used: {error.strerror}; name another") from error
    if is_used:
        raise InvalidInput(f"{folder} is not empty; name a new folder")
    yield folder.resolve()


@contextmanager
def _passing_folder() -> Iterator[Path]:
    """A folder that goes away, and with it what its services keep elsewhere."""
    with tempfile.TemporaryDirectory(prefix="bernstein-tour-") as folder:
        project = Path(folder).resolve()
        places = places_for(project / STATE_FOLDER, os.environ)
        try:
            yield project
        finally:
            for left in (places.runtime_dir, places.secrets_dir):
                shutil.rmtree(left, ignore_errors=True)
