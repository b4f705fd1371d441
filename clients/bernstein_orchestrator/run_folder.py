"""The folder of a run: its id, metadata.json, and replay.json where it replays another.

Rules: docs/formats/plan-and-run.md, section 3.
"""

import secrets
from datetime import UTC, datetime
from typing import Final

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import RunExists
from bernstein_orchestrator.activation import Prepared
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.ports import Journal
from bernstein_orchestrator.replay import Script

_RUN_ID_TRIES: Final = 5


def create_run(
    options: RunOptions, prepared: Prepared, script: Script | None, journal: Journal, now: float
) -> str:
    """Make the run's folder with metadata.json and, for a replay, replay.json."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    for left in reversed(range(_RUN_ID_TRIES)):
        run_id = options.run_id or f"{stamp}-{secrets.token_hex(3)}"
        metadata = _metadata(run_id, now, prepared)
        try:
            return journal.create_run(run_id, metadata, _replay_file(options, script))
        except RunExists:
            if options.run_id or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _metadata(run_id: str, now: float, prepared: Prepared) -> bytes:
    around = prepared.surroundings
    path = prepared.config.path
    members: dict[str, JsonValue] = {
        "run_id": run_id,
        "started_at": now,
        "git_sha": around.git_sha,
        "git_branch": around.git_branch,
        "config_hash": around.config_hash,
        "seed_path": None if path is None else str(path),
    }
    return spelled(members).encode()


def _replay_file(options: RunOptions, script: Script | None) -> bytes:
    if script is None:
        return b""
    members: dict[str, JsonValue] = {
        "replay_of": options.replay_run_id,
        "recorded_head": script.head,
        "allow_live_miss": options.allow_live_miss,
    }
    return spelled(members).encode()
