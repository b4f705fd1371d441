"""`bernstein services logs`: the services' log lines, as text or as they are stored."""

import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from bernstein_cli.fleet_place import refuse_in_fleet
from bernstein_cli.output import Printed, document, json_line, remark, say
from bernstein_cli.services_options import SERVICES, places_of, sdd_dir_option

NAMES = (*SERVICES, "gateway", "proxy", "supervisor", "signer-once")
_POLL_SECONDS = 0.25
_FIRST = ("timestamp", "unix_time", "level", "service", "event")


@click.command()
@click.argument("service", required=False, type=click.Choice(NAMES))
@click.option(
    "-n",
    "count",
    default=50,
    show_default=True,
    type=click.IntRange(min=0),
    help="How many lines of each service.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; with -f one a line.")
@sdd_dir_option
def logs(service: str | None, count: int, follow: bool, as_json: bool, sdd_dir: Path) -> int:
    """Show the newest log lines of one service, or of each."""
    if service in SERVICES:
        refuse_in_fleet(sdd_dir, f"the log of {service}")
    places = places_of(sdd_dir)
    files = [places.log(name) for name in ([service] if service else NAMES)]
    positions = dict.fromkeys(files, 0)
    newest: list[str] = []
    for file in files:
        lines, positions[file] = _new_lines(file, 0)
        newest += deque(lines, maxlen=count)
    if as_json and not follow:
        document({"lines": [_parsed(line) for line in newest]})
    else:
        _show(newest, as_json=as_json)
    if not any(positions.values()):
        remark(f"nothing was logged in {places.logs_dir}")
    while follow:
        for file in files:
            lines, positions[file] = _new_lines(file, positions[file])
            _show(lines, as_json=as_json)
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)
    return 0


def _show(lines: Sequence[str], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            sys.stdout.write(json_line(_parsed(line)) + "\n")
        else:
            say(readable(line))


def _new_lines(file: Path, start: int) -> tuple[list[str], int]:
    """The whole lines of a log from a position on, and the position after them."""
    try:
        with file.open("rb") as opened:
            if start > file.stat().st_size:
                start = 0  # it was put aside and begun anew
            opened.seek(start)
            data = opened.read()
    except FileNotFoundError:
        return [], 0
    end = data.rfind(b"\n") + 1
    return data[:end].decode("utf-8", "backslashreplace").splitlines(), start + end


def readable(line: str) -> str:
    """A log line for people; what is no log line is shown as it is."""
    event = _parsed(line)
    return "  ".join(_facts(event)) if isinstance(event, dict) else line


def _parsed(line: str) -> Printed:
    """A log line as it is stored; what is no log line as text."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return event if isinstance(event, dict) else line


def _facts(event: Mapping[str, object]) -> Iterator[str]:
    yield from (str(event[name]) for name in _FIRST if name in event)
    yield from (f"{name}={value}" for name, value in event.items() if name not in _FIRST)
