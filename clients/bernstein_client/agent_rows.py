"""The rows around agents' traffic: how a run of theirs begins, and what binds its recording."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bernstein_client.connection import Services
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import ChainBroken, ReplayRecordingMissingError

Event = tuple[str, dict[str, JsonValue]]


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
    metadata = spelled({"started_at": now, "kind": "agent"}).encode()
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
    return "agent_started", payload


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
    return [("llm_http_recording", payload)]
