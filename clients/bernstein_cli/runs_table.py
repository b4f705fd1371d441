"""What `replay list` shows: the peer's columns, newest run first."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Final

from bernstein_cli.output import Printed
from bernstein_cli.table import table_lines
from bernstein_client.values import RunInfo
from bernstein_formats.canonical import JsonValue

_COLUMNS: Final = ("Run ID", "Started", "Branch", "SHA", "Events", "Size")
_LATEST_SECONDS: Final = 253402300799.0  # the last second of the year 9999


def runs_lines(runs: Iterable[RunInfo], columns: int) -> Iterator[str]:
    return table_lines(_COLUMNS, map(_cells, runs), columns)


def run_document(run: RunInfo) -> dict[str, Printed]:
    """One run in `replay list --json`."""
    replay = run.replay or {}
    return {
        "run_id": run.run_id,
        "events": run.row_count,
        "size_bytes": run.size_bytes,
        "journal": run.journal_path,
        "sealed": bool(run.seal_json),
        "replay_of": replay.get("replay_of"),
        "damage": run.damage or None,
        "metadata": run.metadata,
    }


def _cells(run: RunInfo) -> tuple[str, ...]:
    metadata = run.metadata or {}
    return (
        run.run_id,
        _minute(metadata.get("started_at")),
        str(metadata.get("git_branch") or "-"),
        str(metadata.get("git_sha") or "-")[:8],
        str(run.row_count),
        f"{run.size_bytes / 1024:.1f} KB" + (f" ({run.damage})" if run.damage else ""),
    )


def _minute(unix_seconds: JsonValue) -> str:
    """Local time to the minute; `-` for anything that is no instant of the calendar."""
    if not isinstance(unix_seconds, int | float) or isinstance(unix_seconds, bool):
        return "-"
    if not math.isfinite(unix_seconds) or not 0 <= unix_seconds <= _LATEST_SECONDS:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_seconds))
