"""What a replay refuses before anything starts, and what it merely warns of."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from bernstein_agent.run_lanes import RunLanes
from bernstein_agent.sandbox import check_possible
from bernstein_client.recorder import Recording
from bernstein_client.values import Verification
from bernstein_formats.agent_environment import Environment
from bernstein_formats.errors import InvalidInput, RecordingChanged, Unavailable
from bernstein_orchestrator.activation import Prepared
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.ports import Journal, Recorder
from bernstein_orchestrator.replay import Script, read_script


def activate_replay(
    options: RunOptions,
    prepared: Prepared,
    journal: Journal,
    recorder: Recorder,
    warn: Callable[[str], None],
) -> tuple[Script, Recording | None]:
    """Return the script and the recording to follow.

    Raises RunNotFound, RowMalformed, ChainBroken, ReplayRecordingMissingError, RecordingChanged,
    InvalidInput.
    """
    recording = recorder.get_recording(options.replay_run_id) if prepared.uses_models else None
    script = read_script(journal.read_journal(options.replay_run_id), options.replay_run_id)
    _check_plan(options, prepared, script)
    _check_commands(options, prepared, script)
    if recording is not None and script.calls is not None:
        _check_recording(options, script.calls, recording)
    verification = journal.verify_run(options.replay_run_id)
    _check_seal(options, verification)
    unvouched = "; ".join(_doubts(options, script, recording, verification))
    if unvouched:
        script = replace(script, unvouched=unvouched)
        warn(f"nothing vouches for this recording: {unvouched}")
    for difference in script.surroundings.differences(prepared.surroundings):
        warn(difference)
    _compare_extensions(prepared, script, warn)
    return script, recording


def recorded_surroundings(
    options: RunOptions,
    script: Script,
    lanes: RunLanes | None,
    now: float,
    warn: Callable[[str], None],
) -> Environment | None:
    """What recorded programs saw; None where there were none.

    Raises EnvironmentChanged for what a recorded request shows and is not so today, Unavailable.
    """
    if script.environment is None:
        return None
    if lanes is None:
        raise Unavailable(
            f"run {options.replay_run_id} recorded its programs, and the proxy is not installed:"
            " pip install 'bernstein-services[proxy]'"
        )
    recorded = lanes.recorded(options.replay_run_id, script.environment)
    project, environ = options.project.resolve(), options.environment
    for each in lanes.check(options.replay_run_id, recorded, project, environ, now):
        warn(f"not as it was recorded, and in no request: {each.text()}")
    return recorded


def _check_plan(options: RunOptions, prepared: Prepared, script: Script) -> None:
    ours = frozenset(task.task_id for task in prepared.graph.tasks)
    if ours != script.task_ids or prepared.graph.digest != script.graph_digest:
        raise InvalidInput(
            f"{prepared.plan.source} is not the plan that run {options.replay_run_id} recorded:"
            f" their task ids differ, and these are made from the file's bytes (SHA-256 today"
            f" {prepared.plan.digest[:12]}…); replay with the file as it was",
            kind="plan_changed",
            run_id=options.replay_run_id,
        )


def _check_commands(options: RunOptions, prepared: Prepared, script: Script) -> None:
    tasks = prepared.command_tasks
    if tasks:
        check_possible()
    if tasks and script.environment is None and not options.offline_agents:
        titles = ", ".join(repr(task.step.title) for task in tasks[:5])
        raise InvalidInput(
            f"run {options.replay_run_id} cannot be replayed strictly: {titles}"
            f"{' and more' if len(tasks) > 5 else ''} is done by a program, whose own traffic was"
            " not recorded (no BERNSTEIN_DETERMINISTIC_SEED, or no proxy); --offline-agents runs"
            " such programs without a network and reports"
            " them as unrecorded",
            kind="command_agent",
            run_id=options.replay_run_id,
            tasks=len(tasks),
        )


def _check_recording(options: RunOptions, calls: Recording, recording: Recording) -> None:
    if calls != recording:
        raise RecordingChanged(
            f"the recorded calls of run {options.replay_run_id} are not what its journal says:"
            f" {recording.call_count} calls of {recording.size_bytes} bytes, recorded were"
            f" {calls.call_count} of {calls.size_bytes}"
            f" (SHA-256 {recording.sha256_hex[:12]}…, recorded {calls.sha256_hex[:12]}…);"
            " restore llm_calls.jsonl from a copy",
            run_id=options.replay_run_id,
        )


def _check_seal(options: RunOptions, verification: Verification) -> None:
    """Refuse a journal that is not the one that was sealed, wherever that is known from."""
    wrong = [*verification.errors, *(each.reason for each in verification.findings)]
    if verification.identity == "mismatched" or verification.findings:
        raise RecordingChanged(
            f"the journal of run {options.replay_run_id} is not what was recorded:"
            f" {'; '.join(wrong[:5]) or 'its seal does not match'}; see"
            f" `bernstein replay {options.replay_run_id} --verify` and restore it from a copy",
            run_id=options.replay_run_id,
        )


def _doubts(
    options: RunOptions, script: Script, recording: Recording | None, verification: Verification
) -> Iterator[str]:
    """What keeps a recording from being known as the one that was made."""
    if recording is not None and script.calls is None:
        yield f"no row of run {options.replay_run_id} binds its recorded calls"
    if not script.end:
        yield "no row ends it: it was cut off, or never ended, and its replay ends where it does"
    if verification.identity != "verified":
        yield "no seal says what was recorded"
        if script.run_id != options.replay_run_id:
            yield f"its rows name another run, {script.run_id}"


def _compare_extensions(prepared: Prepared, script: Script, warn: Callable[[str], None]) -> None:
    name = "extension_set_digest"
    if script.extension_set.get(name) != prepared.extension_set[name]:
        warn("the skills and plug-ins differ from the recording (loaded_extension_set)")
