"""`bernstein services status`: which processes run, since when, and how large they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bernstein_cli.output import document, remark, say
from bernstein_cli.services_options import json_option, sdd_dir_option, supervisor_of
from bernstein_cli.table import table_lines, width

_NAMES = ("SERVICE", "PID", "UPTIME", "MEMORY", "RESTARTS")


@click.command()
@sdd_dir_option
@json_option
def status(sdd_dir: Path, as_json: bool) -> int:
    """Show the running services of a project."""
    answer = supervisor_of(sdd_dir).ask({"do": "status"})
    running = [] if answer is None else answer["services"]
    described = [{**each, "memory_bytes": memory_bytes(each["pid"])} for each in running]
    if as_json:
        version = None if answer is None else answer["version"]
        document({"running": answer is not None, "version": version, "services": described})
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
    return 0


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
