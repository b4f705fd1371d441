"""`bernstein import DIR`: runs that the peer recorded are taken in, row by row and verbatim."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click

from bernstein_cli import exit_codes
from bernstein_cli.output import Printed, document, remark, say
from bernstein_client.connection import Services
from bernstein_formats.errors import StoreFailed
from bernstein_importer.importer import Importer
from bernstein_importer.outcome import Outcome, Status
from bernstein_importer.source import Source, check_apart, find_source


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Go on taking in what is added, until Ctrl-C.")
@click.option("--run", "run_id", default="", metavar="ID", help="Only this run.")
@click.option(
    "--sdd-dir",
    type=click.Path(path_type=Path),
    default=Path(".sdd"),
    show_default=True,
    help="Where the runs go.",
)
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON document on stdout.")
def import_(*, folder: Path, follow: bool, run_id: str, sdd_dir: Path, as_json: bool) -> int:
    """Take in the runs of DIR, a project folder of the peer or its .sdd, as they are.

    Nothing is written to DIR. Importing again adds what is new. Exit 1 when a run could not be
    taken in; the others are.
    """
    source = find_source(folder)
    check_apart(source, sdd_dir)
    _make_folder(sdd_dir)
    last: dict[str, Outcome] = {}
    with Services(sdd_dir) as services:
        importer = Importer(source, services.journal, lambda: services.recorder, run_id)
        for outcome in _outcomes(importer, follow=follow):
            last[outcome.run_id] = outcome
            _tell(outcome, as_json=as_json)
    if as_json:
        document(_report(source, sdd_dir, last))
    elif not last:
        say(f"{source.sdd_dir} has no run")
    failed = any(each.status is Status.FAILED for each in last.values())
    return exit_codes.FAILED if failed else exit_codes.OK


def _make_folder(sdd_dir: Path) -> None:
    try:
        sdd_dir.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreFailed(
            f"{sdd_dir} cannot be made: {error.strerror}; name a writable place with --sdd-dir",
            path=sdd_dir,
        ) from error


def _outcomes(importer: Importer, *, follow: bool) -> Iterator[Outcome]:
    if not follow:
        yield from importer.import_all()
        return
    with _stop_on_signals() as stop:
        remark("following; Ctrl-C ends it")
        yield from importer.follow(stop)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set at the first Ctrl-C or SIGTERM; the second interrupts."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(outcome: Outcome, *, as_json: bool) -> None:
    if outcome.status is Status.FAILED:
        remark(f"bernstein: {outcome.error} [{outcome.reason}]")
    elif not as_json:
        say(_line(outcome))


def _line(outcome: Outcome) -> str:
    parts = [f"{outcome.rows} rows"]
    if outcome.calls:
        parts.append(f"{outcome.calls} recorded calls")
    if outcome.spine_rows:
        parts.append(f"{outcome.spine_rows} spine rows")
    parts.append(f"{outcome.new_bytes} of {outcome.size_bytes} bytes are new")
    if outcome.torn_bytes:
        parts.append(f"{outcome.torn_bytes} bytes of an unfinished line left for later")
    return f"{outcome.run_id}: {outcome.status.value}: {', '.join(parts)}"


def _report(source: Source, sdd_dir: Path, last: dict[str, Outcome]) -> dict[str, Printed]:
    return {
        "source": str(source.sdd_dir),
        "sdd_dir": os.path.realpath(sdd_dir),
        "runs": [asdict(outcome) for outcome in last.values()],
    }
