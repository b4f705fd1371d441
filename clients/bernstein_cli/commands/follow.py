"""`bernstein follow RUN`: the rows of a run as they are written, until it is sealed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bernstein_cli.completion import complete_runs
from bernstein_cli.events_table import event_lines
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import YELLOW, remark, say
from bernstein_cli.run_environment import STREAM_VARIABLE, TRUE_WORDS, odd_values
from bernstein_cli.services_options import sdd_dir_option
from bernstein_cli.table import width
from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows
from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.journal_reader import Row
from bernstein_formats.run_choice import LATEST
from bernstein_formats.thread import ThreadStep, step_at


@click.command()
@click.argument("run_id", default=LATEST, metavar="[RUN]", shell_complete=complete_runs)
@click.option("--from", "start", default=0, type=click.IntRange(min=0), help="The first row shown.")
@click.option(
    "--stream", is_flag=True, help=f"By the gateway's stream; so does {STREAM_VARIABLE}=1."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document a row.")
@sdd_dir_option
def follow(*, run_id: str, start: int, stream: bool, as_json: bool, sdd_dir: Path) -> int:
    """Show the rows of a run (or of the newest one) as they are written; Ctrl-C ends it.

    It ends by itself once the run is sealed. A row that is not where it says it is ends it, too,
    with exit code 1.
    """
    for text in odd_values():
        remark(f"warning: {text}", YELLOW)
    by_stream = stream or os.environ.get(STREAM_VARIABLE, "").strip().lower() in TRUE_WORDS
    require_folder(sdd_dir, starts_here=by_stream)
    with Services(sdd_dir) as services:
        run = services.journal.get_run(run_id).run_id
        if run != run_id:
            remark(f"following {run}")
        steps = _streamed(services, run, start) if by_stream else _watched(services, run, start)
        if as_json:
            for step in steps:
                sys.stdout.write(step.data.decode() + "\n")
                sys.stdout.flush()
        else:
            lines = event_lines(
                map(_row, steps), width(), lambda note: remark(f"note: {note}"), first=start
            )
            for line in lines:
                say(line)
                sys.stdout.flush()
    return 0


def _watched(services: Services, run_id: str, start: int) -> Iterator[ThreadStep]:
    for item in services.journal.watch_rows(run_id, start):
        if isinstance(item, WatchedRows):
            for number, line in enumerate(item.lines):
                yield step_at(item.first_index + number, line)


def _streamed(services: Services, run_id: str, start: int) -> Iterator[ThreadStep]:
    from bernstein_client.thread_stream import ThreadStream  # noqa: PLC0415 - loads an HTTP client

    services.supervisor.ensure("gateway")
    yield from ThreadStream(services.places.socket("gateway")).steps(run_id, start)


def _row(step: ThreadStep) -> Row:
    """The row as the table shows it; the thread does not carry its times."""
    data = parse_json(step.data)
    assert isinstance(data, dict)
    payload = data["payload"]
    row: dict[str, JsonValue] = dict(payload) if isinstance(payload, dict) else {}
    return row | {"event": data["journal_event"]}
