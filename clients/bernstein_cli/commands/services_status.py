"""`bernstein services status`: which processes run, since when, and how large they are."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.output import document, remark, say
from bernstein_cli.services_options import json_option, places_of, sdd_dir_option, supervisor_of
from bernstein_cli.table import table_lines, width

if TYPE_CHECKING:
    from bernstein_cli.fleet_health import ServiceHealth

_FLEET_NAMES = ("SERVICE", "ADDRESS", "STATE")
_NAMES = ("SERVICE", "PID", "UPTIME", "MEMORY", "RESTARTS")


@click.command()
@sdd_dir_option
@json_option
def status(sdd_dir: Path, as_json: bool) -> int:
    """Show the running services of a project; of a fleet each one on each host.

    Exit 1 when one of a fleet's does not serve.
    """
    remote = _remote(sdd_dir)
    answer = supervisor_of(sdd_dir).ask({"do": "status"})
    running = [] if answer is None else answer["services"]
    described = [{**each, "memory_bytes": memory_bytes(each["pid"])} for each in running]
    if as_json:
        version = None if answer is None else answer["version"]
        document(
            {
                "running": answer is not None,
                "version": version,
                "services": described,
                "fleet": [asdict(each) for each in remote],
            }
        )
    elif remote:
        _tell_fleet(remote, described)
    elif not described:
        say("No services are running.")
    else:
        for line in table_lines(_NAMES, map(_cells, described), width()):
            say(line)
    for each in described:
        if not each.get("answers", True):  # a supervisor of an older version does not look
            pid = each["pid"]
            remark(
                f"{each['service']} does not answer: wake it with `kill -CONT {pid}`, or run"
                " `bernstein services stop`"
            )
    return exit_codes.OK if all(each.ok for each in remote) else exit_codes.FAILED


def _remote(sdd_dir: Path) -> "list[ServiceHealth]":
    if not in_fleet(sdd_dir):
        return []
    from bernstein_cli.fleet_health import fleet_health  # noqa: PLC0415 - gRPC, only where needed

    return list(fleet_health(places_of(sdd_dir).state_dir, os.environ))


def _tell_fleet(remote: "list[ServiceHealth]", here: Sequence[Mapping[str, Any]]) -> None:
    rows = [(each.service, each.address, each.seen) for each in remote]
    for line in table_lines(_FLEET_NAMES, rows, width()):
        say(line)
    running = ", ".join(f"{each['service']} (process {each['pid']})" for each in here)
    remark(f"on this host: {running or 'nothing'}")


def memory_bytes(pid: int) -> int | None:
    """Resident memory of a process; None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(sizes[0]) * 1024 if sizes else None


def _cells(service: Mapping[str, Any]) -> tuple[str, ...]:
    memory = service["memory_bytes"]
    return (
        service["service"],
        str(service["pid"]),
        _duration(service["uptime_seconds"]),
        "-" if memory is None else f"{memory / 1024 / 1024:.0f} MiB",
        str(service["restarts"]),
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
