"""`bernstein run PLAN`: a plan is run and recorded, or a recorded run is replayed."""

import os
from pathlib import Path

import click

from bernstein_agent.run_lanes import RunLanes
from bernstein_cli import exit_codes
from bernstein_cli.automatic_receipt import make_automatic_receipt
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.handing_over import hand_over_line
from bernstein_cli.output import YELLOW, document, remark, say
from bernstein_cli.pruning import prune_runs
from bernstein_cli.run_environment import odd_values, read_run_environment
from bernstein_cli.run_progress import progress_view
from bernstein_cli.run_summary import advice_lines, exit_code, summary_document, summary_lines
from bernstein_cli.signing_key import without_key
from bernstein_client.connection import Services
from bernstein_client.provider_environment import take_provider_keys
from bernstein_client.values import BuiltReceipt
from bernstein_formats.errors import InvalidInput, RunNotFound, StoreFailed
from bernstein_orchestrator.activation import prepare
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.progress import RunResult
from bernstein_orchestrator.run import run_plan
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.protection import hide

STATE_FOLDER = ".sdd"
EPILOG = """
Environment:

\b
BERNSTEIN_DETERMINISTIC_SEED      any text: record every internal model call
BERNSTEIN_REPLAY_RUN_ID           replay this run; no model is called
BERNSTEIN_REPLAY_ALLOW_LIVE_MISS  1: what the recording lacks is asked for, with a warning
BERNSTEIN_REPLAY_RETENTION        N: once the run is over, only the newest N runs stay
BERNSTEIN_LINEAGE_ENABLED         0: the run's end is not sealed in its spine, too
BERNSTEIN_RUN_ID                  the id of the new run, instead of a made one
BERNSTEIN_SEED_PATH               the configuration, instead of bernstein.yaml
BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH, _ENV_VAR, _KID  sign a receipt when the run ends
OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY

Exit codes: 0 every task is done and a replay reached the recorded head, 1 not so, 2 wrong usage,
10 replay miss, 11 replay incomplete (--require-complete), 12 recording missing, 130 interrupted.
"""


@click.command("run", epilog=EPILOG)
@click.argument(
    "plan_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-w",
    "--workdir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The project folder; its .sdd folder keeps the run.  [default: the current folder]",
)
@click.option("--max-agents", type=click.IntRange(min=1), help="How many agents work at a time.")
@click.option(
    "--offline-agents",
    is_flag=True,
    help="In a replay, run programs without a network instead of refusing the plan.",
)
@click.option(
    "--require-complete",
    is_flag=True,
    help="Fail (exit 11) when a replay left recorded calls unused.",
)
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON document on stdout.")
@click.pass_context
def run(
    ctx: click.Context,
    *,
    plan_file: Path | None,
    workdir: Path,
    max_agents: int | None,
    offline_agents: bool,
    require_complete: bool,
    as_json: bool,
) -> int:
    """Run the steps of PLAN_FILE with agents, and record what happens below .sdd/runs.

    The steps of a stage run side by side, a stage after those that it depends on.
    """
    if plan_file is None:
        hand_over_line(ctx, "`run` without a plan file")
    hide()
    options = _options(plan_file, workdir, max_agents, offline_agents=offline_agents)
    if require_complete and not options.replay_run_id:
        raise click.UsageError(
            "--require-complete is for replays: set BERNSTEIN_REPLAY_RUN_ID to a recorded run"
        )
    result, receipt = _performed(options)
    receipt_path = None if receipt is None else receipt.receipt_path
    if as_json:
        document(summary_document(result) | {"receipt_path": receipt_path})
    else:
        _tell(result, options, receipt_path)
    return _checked_exit_code(result, require_complete=require_complete)


def _options(
    plan_file: Path, workdir: Path, max_agents: int | None, *, offline_agents: bool
) -> RunOptions:
    environment = read_run_environment()
    for text in odd_values():
        remark(f"warning: {text}", YELLOW)
    given = without_key(os.environ)
    take_provider_keys()
    return RunOptions(
        plan_path=plan_file,
        project=workdir,
        sdd_dir=workdir / STATE_FOLDER,
        seed=environment.seed,
        replay_run_id=environment.replay_run_id,
        allow_live_miss=environment.allow_live_miss,
        offline_agents=offline_agents,
        run_id=environment.run_id,
        config_path=environment.config_path,
        max_agents=max_agents,
        providers=environment.providers,
        spine_seal=environment.spine_seal,
        environment=given,
    )


def _performed(options: RunOptions) -> tuple[RunResult, BuiltReceipt | None]:
    """Run the plan, showing how it goes on; then make its receipt, if a key is named for that."""
    # What cannot be run is refused before a folder is made and a service started for it.
    prepare(options, lambda _: None)
    _make_state_folder(options)
    view = progress_view()
    try:
        with Services(options.sdd_dir) as services:
            result = run_plan(
                options,
                journal=services.journal,
                recorder=lambda: services.recorder,
                report=view.show,
                clock=SystemClock().now_seconds,
                audit=services.macs.append_audit_event,
                lanes=RunLanes(services) if RunLanes.are_installed() else None,
            )
            view.close()
            receipt = make_automatic_receipt(services, result.run_id)
            prune_runs(services, read_run_environment().keep_runs)
            return result, receipt
    finally:
        view.close()


def _make_state_folder(options: RunOptions) -> None:
    is_known = options.sdd_dir.is_dir() or in_fleet(options.sdd_dir)
    if options.replay_run_id and not is_known:
        raise RunNotFound(
            f"there is no run {options.replay_run_id}: {options.project.absolute()} has no"
            f" {STATE_FOLDER} folder; go to the project where it was recorded",
            run_id=options.replay_run_id,
        )
    try:
        options.sdd_dir.mkdir(exist_ok=True)
    except FileExistsError:
        raise InvalidInput(f"{options.sdd_dir} is no folder; move it away") from None
    except OSError as error:
        raise StoreFailed(
            f"{options.sdd_dir} cannot be made: {error.strerror}; make the project folder writable"
        ) from error


def _tell(result: RunResult, options: RunOptions, receipt_path: str | None) -> None:
    for line in summary_lines(result):
        say(line)
    if receipt_path is not None:
        say(f"receipt: {receipt_path}")
    for line in advice_lines(result, options):
        remark(line)


def _checked_exit_code(result: RunResult, *, require_complete: bool) -> int:
    code = exit_code(result, require_complete=require_complete)
    if code == exit_codes.REPLAY_INCOMPLETE:
        remark("bernstein: recorded calls were never asked for [REPLAY_INCOMPLETE]")
    return code
