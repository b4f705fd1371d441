"""Which run is the newest, and which one `latest` means: by recorded start, never by name alone."""

import re
from collections.abc import Mapping
from typing import Final

from bernstein_formats.canonical import parse_json
from bernstein_formats.errors import InvalidInput

LATEST: Final = "latest"
# Journals that are no orchestrator's run; `latest` never means one of them.
_OTHER_JOURNALS: Final = re.compile(r"(task|webhook|sched-fire|a2a|admin)-")


def recorded_start(metadata_json: bytes, first_line: bytes) -> float:
    """Unix time at which a run began: its metadata's, else its first row's, else 0."""
    for text, member in ((metadata_json, "started_at"), (first_line, "ts")):
        try:
            value = parse_json(text or b"null")
        except InvalidInput:
            continue
        start = value.get(member) if isinstance(value, dict) else None
        if isinstance(start, int | float) and not isinstance(start, bool):
            return float(start)
    return 0.0


def newest_first(starts: Mapping[str, float]) -> list[str]:
    """Run ids by their start, the newest first."""
    return sorted(starts, key=lambda run_id: (starts[run_id], run_id), reverse=True)


def latest(newest: list[str]) -> str | None:
    """The newest orchestrator run among ids in that order."""
    return next((run_id for run_id in newest if not _OTHER_JOURNALS.match(run_id)), None)
