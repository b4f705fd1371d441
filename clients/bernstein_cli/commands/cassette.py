"""`bernstein cassette import FILE...`: cassettes of vcrpy go on as cassettes of ours."""

from pathlib import Path

import click

from bernstein_cli import exit_codes
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.services_options import json_option
from bernstein_client.cassette_import import Imported, import_cassette
from bernstein_client.cassette_services import end_cassette_services
from bernstein_client.recorded import FOLDER
from bernstein_formats.errors import BernsteinError


@click.group()
def cassette() -> None:
    """Work with the recorded model calls of test suites."""


@cassette.command("import")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "--folder",
    default=FOLDER,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the cassettes go.",
)
@json_option
def import_(*, files: tuple[Path, ...], folder: Path, as_json: bool) -> int:
    """Make cassettes of those that vcrpy wrote, in YAML or JSON; FILE is only read.

    NAME.yaml becomes FOLDER/NAME. What is no call of a model is left out, and told. Exit 1 when a
    file could not be taken in; the others are.
    """
    try:
        return _import_all(files, folder, as_json=as_json)
    finally:
        end_cassette_services()


def _import_all(files: tuple[Path, ...], folder: Path, *, as_json: bool) -> int:
    done: list[Imported] = []
    refused: list[dict[str, str]] = []
    for file in files:
        try:
            imported = import_cassette(file, folder)
        except BernsteinError as error:
            remark(f"bernstein: {error.message} [{error.reason}]")
            refused.append({"file": str(file), "error": error.reason, "detail": error.message})
            continue
        done.append(imported)
        if not as_json:
            say(f"{imported.cassette}: {imported.count} model calls")
            for each in imported.left_out:
                remark(f"{file}: left out interaction {each.number}, {each.method} {each.uri}")
    if as_json:
        document({"cassettes": [_document(each) for each in done], "refused": refused})
    return exit_codes.FAILED if refused else exit_codes.OK


def _document(imported: Imported) -> dict[str, Printed]:
    return {
        "file": str(imported.source),
        "cassette": str(imported.cassette),
        "count": imported.count,
        "left_out": [
            {"number": each.number, "method": each.method, "uri": each.uri}
            for each in imported.left_out
        ],
    }
