"""What came of a run: the last lines for people, one JSON document for programs, an exit code."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bernstein_cli import exit_codes
from bernstein_cli.agent_run import lane_document
from bernstein_cli.fleet_place import in_fleet
from bernstein_formats.canonical import JsonValue
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.progress import INTERRUPTED, ReplayResult, RunResult

UNUSED_SHOWN_MAX: Final = 10


def exit_code(result: RunResult, *, require_complete: bool) -> int:
    """Rules: docs/decisions, 20."""
    if result.outcome == INTERRUPTED:
        return exit_codes.INTERRUPTED
    if not result.is_good:
        return exit_codes.FAILED
    if require_complete and result.replay is not None and not result.replay.is_complete:
        return exit_codes.REPLAY_INCOMPLETE
    return exit_codes.OK


def summary_lines(result: RunResult) -> Iterator[str]:
    """The end of a run in words."""
    what = f"replay {result.run_id}" if result.replay else f"run {result.run_id}"
    unvouched = result.replay is not None and result.replay.unvouched
    yield f"{what}: {result.outcome}{' (unvouched)' if unvouched else ''}"
    yield f"folder: {result.folder}"
    yield (
        f"tasks: {len(result.completed)} done, {len(result.failed)} failed,"
        f" {len(result.undone)} not done"
    )
    for word, titles in (("failed", result.failed), ("not done", result.undone)):
        for title in titles:
            yield f"  {word}: {title}"
    if result.replay is not None:
        yield from _replay_lines(result.replay)
    elif result.recording is not None:
        recording = result.recording
        yield f"recorded: {recording.call_count} model calls, {recording.size_bytes} bytes"
    else:
        yield "recorded: no model call; to record them set BERNSTEIN_DETERMINISTIC_SEED"
    yield f"sealed head: {result.head_hash_hex} ({result.row_count} rows)"


def _replay_lines(replay: ReplayResult) -> Iterator[str]:
    if replay.coverage_line:
        yield replay.coverage_line
    if replay.lanes:
        yield (
            f"programs: hits={replay.lane_count('served')} misses={replay.lane_count('misses')}"
            f" left={replay.lane_count('unused_count')}"
        )
    if replay.heads_equal:
        yield f"head equals the recorded head: {replay.head}"
    else:
        yield f"head differs from the recorded head {replay.recorded_head or '(none)'}"
        yield f"first difference: {replay.first_difference or 'not known'}"
    if replay.unused_count:
        yield f"recorded calls that nobody asked for: {replay.unused_count}"
        for call in replay.unused_calls[:UNUSED_SHOWN_MAX]:
            yield f"  line {call.line}: {call.model} (key {call.key})"
        if replay.unused_count > UNUSED_SHOWN_MAX:
            yield f"  and {replay.unused_count - UNUSED_SHOWN_MAX} more"
    if replay.unvouched:
        yield f"unvouched: nothing shows that this is what was recorded: {replay.unvouched}"
    for title in replay.unrecorded_tasks:
        yield f"not recorded, run again without a network: {title}"


def advice_lines(result: RunResult, options: RunOptions) -> Iterator[str]:
    """What to type next, here."""
    is_here = options.project == Path()
    sdd = "" if is_here else f" --sdd-dir {shlex.quote(str(options.sdd_dir))}"
    workdir = "" if is_here else f" -w {shlex.quote(str(options.project))}"
    yield "next:"
    if result.next_step:
        yield f"  {result.next_step}"
    run_id = result.run_id
    if result.recording is not None and result.recording.call_count:
        offline = " --offline-agents" if result.has_programs else ""
        yield f"  BERNSTEIN_REPLAY_RUN_ID={run_id} {options.command}{offline}"
    yield f"  bernstein replay {run_id} --verify{sdd}"
    if result.replay is None:
        yield f"  bernstein replay {run_id} --re-derive{sdd}"
        key = "" if in_fleet(options.sdd_dir) else " --signing-key-path KEY.pem"
        yield f"  bernstein verify run {run_id}{key}{workdir}"
    elif not result.replay.heads_equal:
        yield f"  bernstein replay diff {result.replay.replay_of} {run_id}{sdd}"


def summary_document(result: RunResult) -> dict[str, JsonValue]:
    """The same as one JSON object."""
    recording: JsonValue = None
    if result.recording is not None:
        recording = {
            "call_count": result.recording.call_count,
            "size_bytes": result.recording.size_bytes,
            "sha256": result.recording.sha256_hex,
        }
    return {
        "run_id": result.run_id,
        "folder": str(result.folder),
        "outcome": result.outcome,
        "ok": result.is_good,
        "completed": list(result.completed),
        "failed": list(result.failed),
        "undone": list(result.undone),
        "head_hash": result.head_hash_hex,
        "row_count": result.row_count,
        "recording": recording,
        "replay": None if result.replay is None else _replay_document(result.replay),
        "next_step": result.next_step,
    }


def _replay_document(replay: ReplayResult) -> dict[str, JsonValue]:
    return {
        "replay_of": replay.replay_of,
        "recorded_head": replay.recorded_head,
        "head": replay.head,
        "heads_equal": replay.heads_equal,
        "first_difference": replay.first_difference,
        "coverage_line": replay.coverage_line,
        "hits": replay.hit_count,
        "misses": replay.miss_count,
        "unused_calls": [
            {"line": call.line, "key": call.key, "model": call.model}
            for call in replay.unused_calls
        ],
        "unused_count": replay.unused_count,
        "lanes": [lane_document(each) for each in replay.lanes],
        "unrecorded_tasks": list(replay.unrecorded_tasks),
        "unvouched": replay.unvouched or None,
    }
