"""`bernstein import DIR`: runs that the peer recorded are taken in, row by row and verbatim."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import in_fleet, make_folder
from bernstein_cli.output import Printed, document, json_line, remark, say
from bernstein_client.connection import Services
from bernstein_importer.following import Following
from bernstein_importer.importer import Importer
from bernstein_importer.outcome import Outcome, Status
from bernstein_importer.source import Source, check_apart, find_source
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.observed import observed
from bernstein_runtime.readiness import Readiness


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--follow",
    is_flag=True,
    help="Go on taking in what is added, and seal runs that have ended, until Ctrl-C or SIGTERM.",
)
@click.option("--run", "run_id", default="", metavar="ID", help="Only this run.")
@click.option(
    "--sdd-dir",
    type=click.Path(path_type=Path),
    default=Path(".sdd"),
    show_default=True,
    help="Where the runs go.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Report as one JSON document on stdout; with --follow one a line, as it happens.",
)
def import_(*, folder: Path, follow: bool, run_id: str, sdd_dir: Path, as_json: bool) -> int:
    """Take in the runs and step journals of DIR, a project folder of the peer or its .sdd.

    Nothing is written to DIR. Importing again adds what is new. Rows that do not link are not
    taken, and what was taken is compared. Exit 1 when a run could not be taken in; the others are.
    """
    source = find_source(folder)
    if not in_fleet(sdd_dir):
        check_apart(source, sdd_dir)
        make_folder(sdd_dir)
    with Services(sdd_dir) as services:
        importer = Importer(source, services, run_id)
        if follow:
            readiness = Readiness()
            with observed("import", readiness, services.places, os.environ):
                readiness.watch(lambda: None)
                return _followed(importer, as_json=as_json)
        outcomes = _told(importer.import_all(), as_json=as_json)
    if as_json:
        document(_report(source, sdd_dir, outcomes))
    elif not outcomes:
        say(f"{source.sdd_dir} has no run")
    failed = any(each.status is Status.FAILED for each in outcomes)
    return exit_codes.FAILED if failed else exit_codes.OK


def _followed(importer: Importer, *, as_json: bool) -> int:
    """To the end that is asked for, which is no failure: what failed was told when it did."""
    with _stop_on_signals() as stop:
        following = Following(importer, stop, SystemClock(), remark)
        remark("following; Ctrl-C ends it")
        for outcome in following.outcomes():
            if as_json:
                say(json_line(asdict(outcome)))
            _tell(outcome, as_json=as_json)
            sys.stdout.flush()  # whoever reads it may be a log, for days
    return exit_codes.OK


def _told(outcomes: Iterator[Outcome], *, as_json: bool) -> list[Outcome]:
    done = []
    for outcome in outcomes:
        _tell(outcome, as_json=as_json)
        done.append(outcome)
    return done


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
    name = outcome.run_id or f"agent {outcome.agent_id}"
    if outcome.status is Status.GONE:
        return f"{name}: gone in the source; it stays here"
    counts = {
        "rows": outcome.rows,
        "recorded calls": outcome.calls,
        "spine rows": outcome.spine_rows,
        "steps": outcome.steps,
    }
    always = "steps" if outcome.agent_id else "rows"
    parts = [f"{count} {what}" for what, count in counts.items() if count or what == always]
    if outcome.status is not Status.SEALED:
        parts.append(f"{outcome.new_bytes} of {outcome.size_bytes} bytes are new")
    parts += [f"{count} {reason}" for reason, count in outcome.findings.items()]
    if outcome.torn_bytes:
        parts.append(f"{outcome.torn_bytes} bytes that are no row yet left for later")
    return f"{name}: {outcome.status.value}: {', '.join(parts)}"


def _report(source: Source, sdd_dir: Path, outcomes: list[Outcome]) -> dict[str, Printed]:
    return {
        "source": str(source.sdd_dir),
        "sdd_dir": os.path.realpath(sdd_dir),
        "runs": [asdict(outcome) for outcome in outcomes],
    }
