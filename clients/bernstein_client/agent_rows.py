"""The rows around agents' traffic: how a run of theirs begins, and what binds its recording."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bernstein_client.connection import Services
from bernstein_client.values import RunInfo
from bernstein_formats.canonical import JsonValue, parse_json, spelled
from bernstein_formats.errors import (
    ChainBroken,
    Conflict,
    InvalidInput,
    ReplayRecordingMissingError,
)
from bernstein_formats.journal_reader import LineBlocks, Row

Event = tuple[str, Mapping[str, JsonValue]]
# What an agent is called in its run unless somebody names it.
DEFAULT_LANE: Final = "agent"
STARTED: Final = "agent_started"
RECORDING: Final = "llm_http_recording"
# What metadata.json says of such a run.
AGENT_RUN: Final = "agent"


def create_run(services: Services, replay_run_id: str, now: float) -> str:
    """Make the run that takes the rows. Raises ChainBroken, RunNotFound for what it replays."""
    replay = b""
    if replay_run_id:
        verified = services.journal.verify_run(replay_run_id)
        if verified.has_diverged:
            raise ChainBroken(
                f"the journal of run {replay_run_id} is broken, so it is not replayed;"
                f" `bernstein replay {replay_run_id} --verify` says where",
                run_id=replay_run_id,
            )
        members: dict[str, JsonValue] = {
            "replay_of": replay_run_id,
            "recorded_head": verified.head_hash,
            "allow_live_miss": False,
        }
        replay = spelled(members).encode()
    metadata = spelled({"started_at": now, "kind": AGENT_RUN}).encode()
    return services.journal.create_run(metadata=metadata, replay=replay)


def started_event(lane: str, command: Sequence[str] = (), client: str = "") -> Event:
    """The row of an agent's start; its arguments by digest, since they may hold anything."""
    payload: dict[str, JsonValue] = {"lane": lane}
    if client:
        payload["client"] = client
    if command:
        digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape"))
        payload |= {
            "program": Path(command[0]).name,
            "argument_count": len(command) - 1,
            "command_sha256": digest.hexdigest(),
        }
    return STARTED, payload


def recording_events(services: Services, run_id: str) -> list[Event]:
    """Bind the file to the journal; no row where nothing was recorded."""
    try:
        _, recording = services.exchanges.read(run_id)
    except ReplayRecordingMissingError:
        return []
    payload: dict[str, JsonValue] = {
        "file": "llm_http.jsonl",
        "exchange_count": recording.call_count,
        "size_bytes": recording.size_bytes,
        "sha256": recording.sha256_hex,
    }
    return [(RECORDING, payload)]


def read_rows(services: Services, run_id: str, *events: str) -> list[Row]:
    """A run's rows of these events, in order. Raises RunNotFound, InvalidInput."""
    names = [event.encode() for event in events]
    rows = (
        parse_json(line)
        for block in LineBlocks(services.journal.read_journal(run_id))
        for line in block
        if any(name in line for name in names)
    )
    return [row for row in rows if isinstance(row, dict) and row.get("event") in events]


def recorded_run(services: Services, run_id: str) -> RunInfo:
    """A run that can be replayed: no replay, which has no answers of its own.

    Raises RunNotFound, InvalidInput.
    """
    run = services.journal.get_run(run_id)
    if run.replay is not None:
        raise InvalidInput(
            f"run {run.run_id} is itself a replay, of run {run.replay.get('replay_of')}: replay"
            " that one",
            run_id=run.run_id,
        )
    return run


def recorded_lane(services: Services, run_id: str) -> str:
    """The lane of a run's one agent. Raises ReplayRecordingMissingError, Conflict."""
    lanes = [str(row.get("lane", DEFAULT_LANE)) for row in read_rows(services, run_id, STARTED)]
    if not lanes:
        raise ReplayRecordingMissingError(
            f"run {run_id} recorded no agent; record one with `bernstein record -- COMMAND`",
            run_id=run_id,
        )
    if len(lanes) > 1:
        raise Conflict(
            f"run {run_id} recorded {len(lanes)} agents, and a command is one of them; open their"
            " lanes one by one with `bernstein agent env CLIENT --replay RUN --lane NAME`",
            run_id=run_id,
        )
    return lanes[0]
