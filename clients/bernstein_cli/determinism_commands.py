"""The commands of `bernstein determinism`, each the library call of the same name."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

import click

from bernstein_cli import determinism_view as view
from bernstein_cli import exit_codes
from bernstein_cli.agent_file import load_agent
from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import Printed, document, remark
from bernstein_cli.run_reader import RunReader, open_runs
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services
from bernstein_client.values import no_progress
from bernstein_determinism import chain, reports, scores
from bernstein_determinism.recorded_runtime import replay_run
from bernstein_determinism.runtime import ReplayResult
from bernstein_determinism.runtime import replay_turn as replay_one
from bernstein_determinism.symptoms import explain
from bernstein_determinism.turn_record import TurnRecord, turns_of
from bernstein_formats.errors import InvalidInput, ReplayDivergenceError, RunNotFound

F = TypeVar("F", bound=Callable[..., object])

_offline = click.option("--offline", is_flag=True, help="Read the files here; start nothing.")


def _run(name: str) -> Callable[[F], F]:
    return click.argument(name, shell_complete=complete_runs)


@click.command("check")
@_run("run_a")
@_run("run_b")
@sdd_dir_option
@json_option
@_offline
def check(*, run_a: str, run_b: str, sdd_dir: Path, as_json: bool, offline: bool) -> int:
    """Compare two runs of the same turns link by link; name the contract that slipped.

    Exit codes: 0 none did, 1 one did, or a run is not there.
    """
    with open_runs(sdd_dir, offline=offline, file=None) as runs:
        found = reports.check_runs(_report(runs, run_a), _report(runs, run_b))
    if as_json:
        document(_members(found) | {"ok": found.ok})
    else:
        view.show_checked(found)
    return exit_codes.OK if found.ok else exit_codes.FAILED


@click.command("diff")
@_run("run_a")
@_run("run_b")
@sdd_dir_option
@json_option
@_offline
def diff(*, run_a: str, run_b: str, sdd_dir: Path, as_json: bool, offline: bool) -> int:
    """Show the first difference of two runs, with its reason code and both values.

    Exit codes: 0 equal, 1 they part, or a run is not there.
    """
    with open_runs(sdd_dir, offline=offline, file=None) as runs:
        found = reports.diff_reports(_report(runs, run_a), _report(runs, run_b))
    if as_json:
        document(_members(found))
    else:
        view.show_diff(found, (run_a, run_b))
    return exit_codes.FAILED if found.diverged else exit_codes.OK


@click.command("verify")
@_run("run_id")
@sdd_dir_option
@json_option
@_offline
def verify(*, run_id: str, sdd_dir: Path, as_json: bool, offline: bool) -> int:
    """Verify a run's chain and the turns in it; for a replay, the links to what it replays.

    Exit codes: 0 whole and in order, 1 not, or the run is not there.
    """
    with open_runs(sdd_dir, offline=offline, file=None) as runs:
        info = runs.get_run(run_id)
        verdict = runs.verify_run(info.run_id, no_progress)
        found = chain.verify_chain_integrity(
            runs.read_journal(info.run_id), originals=_originals(runs, info.replay)
        )
    found = replace(
        found,
        ok=found.ok and verdict.is_clean,
        coverage=verdict.coverage,
        identity=verdict.identity,
    )
    if as_json:
        document({"run_id": info.run_id} | _members(found))
    else:
        view.show_chain(found, info.run_id)
    return exit_codes.OK if found.ok else exit_codes.FAILED


@click.command("compare")
@_run("baseline")
@_run("candidate")
@click.option(
    "--tolerance", default="0", show_default=True, help="Scores this far apart are equal."
)
@sdd_dir_option
@json_option
@_offline
def compare(
    *, baseline: str, candidate: str, tolerance: str, sdd_dir: Path, as_json: bool, offline: bool
) -> int:
    """Compare the scores of two runs' turns; more is better.

    Exit codes: 0 nothing got worse or went away, 1 something did, or a run is not there.
    """
    allowed = _decimal(tolerance)
    with open_runs(sdd_dir, offline=offline, file=None) as runs:
        pair = [
            scores.scored_report(runs.read_journal(runs.get_run(each).run_id))
            for each in (baseline, candidate)
        ]
    found = scores.compare_scored(*pair, tolerance=allowed)
    if as_json:
        document({"ok": found.ok, **_members(found)})
    else:
        view.show_comparison(found)
    return exit_codes.OK if found.ok else exit_codes.FAILED


@click.command("replay-turn")
@_run("run_id")
@click.argument("turn_id", default="")
@click.option(
    "--agent",
    "agent_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The Python file with the functions `agent(turn)` and `setup()` that recorded the run.",
)
@sdd_dir_option
@json_option
def replay_turn(
    *, run_id: str, turn_id: str, agent_file: Path, sdd_dir: Path, as_json: bool
) -> int:
    """Replay a run's turns (or the one named) in headless-replay: no model, no tool is asked.

    The agent's file is run as a program of yours. Exit codes: 0 every link is the recorded one, 1
    they part, 10 the recording lacks an answer, 12 there is no recording.
    """
    require_folder(sdd_dir)
    agent, setup = load_agent(agent_file)
    with Services(sdd_dir) as services:
        info = services.journal.get_run(run_id)
        turns = _chosen(turns_of(services.journal.read_journal(info.run_id)), info.run_id, turn_id)
        try:
            with replay_run(services, setup, info.run_id) as made:
                results = [replay_one(turn, agent, made.runtime) for turn in turns]
        except ReplayDivergenceError as error:
            if "cause" not in error.metadata:  # the recorder's errors say what, not why
                remark(f"likely cause: {explain(error)}")
            raise
    if as_json:
        document(
            {
                "ok": all(each.ok for each in results),
                "run_id": made.run_id,
                "replay_of": info.run_id,
                "turns": [_result(each) for each in results],
            }
        )
    else:
        view.show_replay(results, made.run_id)
    return exit_codes.OK if all(each.ok for each in results) else exit_codes.FAILED


def _report(runs: RunReader, run_id: str) -> reports.ReplayReport:
    run_id = runs.get_run(run_id).run_id
    return reports.replay_report(run_id, runs.read_journal(run_id))


def _originals(runs: RunReader, replay: Mapping[str, object] | None) -> list[TurnRecord]:
    """The turns that a run replays; none where it replays nothing, or that run is not here."""
    source = (replay or {}).get("replay_of")
    if not isinstance(source, str):
        return []
    try:
        return turns_of(runs.read_journal(source))
    except RunNotFound:
        remark(f"run {source}, which this one replays, is not here: links are not checked")
        return []


def _chosen(turns: list[TurnRecord], run_id: str, turn_id: str) -> list[TurnRecord]:
    chosen = [turn for turn in turns if turn_id in ("", turn.turn_id, turn.record_id)]
    if not chosen:
        known = ", ".join(turn.turn_id for turn in turns[:10]) or "none"
        raise InvalidInput(
            f"run {run_id} has no turn {turn_id or 'at all'}; its turns: {known}", run_id=run_id
        )
    return chosen


def _result(result: ReplayResult) -> dict[str, Printed]:
    return {
        "turn_id": result.row.turn_id,
        "ok": result.ok,
        "record_id": result.row.record_id,
        "replay_of_event_id": result.row.replay_of_event_id,
        "fingerprint_composite": result.row.fingerprint_composite,
        "links_compared": result.links_compared,
        "provider_calls": result.provider_calls,
        "unused": result.unused,
    }


def _members(value: object) -> dict[str, Printed]:
    """A report's members; decimals as text, so that no digit is lost."""
    found = _printed(asdict(value))  # type: ignore[call-overload]  # reports are dataclasses
    assert isinstance(found, dict)
    return found


def _printed(value: object) -> Printed:
    if isinstance(value, Mapping):
        return {str(name): _printed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printed(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text[:100])
    except InvalidOperation:
        raise InvalidInput(f"--tolerance {text[:40]!r} is no number", field="tolerance") from None
