"""`bernstein run`: everything is refused that can be refused, then a run gets its folder."""

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bernstein_agent.locked_in import Surroundings
from bernstein_agent.run_lanes import RunLanes
from bernstein_agent.surroundings import look_around
from bernstein_agent.work_tree import keep
from bernstein_formats.agent_environment import Environment
from bernstein_formats.audit_log import AuditFields
from bernstein_orchestrator.activation import Prepared, prepare
from bernstein_orchestrator.agents import Programs
from bernstein_orchestrator.interrupts import stopping_on_signals
from bernstein_orchestrator.ledger import Ledger
from bernstein_orchestrator.mirror import Mirror
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.performance import Performance
from bernstein_orchestrator.ports import Journal, Recorder
from bernstein_orchestrator.progress import Noted, Report, RunResult, warner
from bernstein_orchestrator.replay import Script
from bernstein_orchestrator.replay_activation import activate_replay, recorded_surroundings
from bernstein_orchestrator.run_folder import create_run
from bernstein_orchestrator.schedule import Schedule
from bernstein_orchestrator.sidecars import Sidecars
from bernstein_orchestrator.traffic import Seen, Traffic, Walls
from bernstein_orchestrator.workspace import Workspace

_STOPPING: Final = "stopping; press Ctrl-C again to stop at once"


def run_plan(
    options: RunOptions,
    *,
    journal: Journal,
    recorder: Callable[[], Recorder],
    report: Report,
    clock: Callable[[], float],
    stop: threading.Event | None = None,
    audit: Callable[[AuditFields], object] | None = None,
    lanes: RunLanes | None = None,
) -> RunResult:
    """Run or replay a plan; `clock` gives Unix seconds, `recorder` connects when it is needed.

    `audit` appends to the audit log; a replay has nothing to tell it. Without `lanes` nothing that
    programs say to their models is recorded.

    What is refused raises before a run exists. An error in the middle is raised after the run has
    been ended as failed; ReplayMissError is one. Setting `stop`, Ctrl-C, SIGTERM and SIGHUP end it
    as interrupted; a second signal raises KeyboardInterrupt, and no program is left at work.
    """
    stop = stop or threading.Event()
    warn = warner(report)
    prepared = prepare(options, warn)
    script, recording, recorded = None, None, None
    if options.replay_run_id:
        script, recording = activate_replay(options, prepared, journal, recorder(), warn)
        recorded = recorded_surroundings(options, script, lanes, clock(), warn)
    seen = _seen(options, prepared, lanes, clock())
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop, lambda: report(Noted(_STOPPING))))
        workspace, walls, notes = _workplace(
            options, prepared, script, recorded, lanes, stack=stack
        )
        run_id = create_run(options, prepared, script, journal, clock())
        max_agents = script.max_agents if script is not None else prepared.max_agents
        mirror = Mirror(run_id, audit, warn) if audit is not None and script is None else None
        surroundings = script.environment if script is not None else seen
        traffic = None
        if lanes is not None and surroundings is not None:
            traffic = Traffic(lanes, options, run_id, surroundings)
        performance = Performance(
            options=options,
            prepared=prepared,
            script=script,
            journal=journal,
            ledger=Ledger(journal, run_id, mirror),
            schedule=Schedule(
                prepared.graph.tasks, max_agents=max_agents, max_retries=options.max_retries
            ),
            report=report,
            run_id=run_id,
            room=prepared.max_agents if options.max_agents else max_agents,
            traffic=traffic,
        )
        programs = Programs(
            workspace,
            options.environment,
            stop,
            sidecars=Sidecars(notes, run_id),
            traffic=traffic,
            walls=walls,
        )
        stack.callback(programs.end)
        performance.announce()
        return performance.carry_out(workspace, programs, stop, recorder, recording)


def _workplace(
    options: RunOptions,
    prepared: Prepared,
    script: Script | None,
    recorded: Environment | None,
    lanes: RunLanes | None,
    *,
    stack: ExitStack,
) -> tuple[Workspace, Walls | None, Path]:
    """The files, the walls around programs, and where their wrappers leave notes.

    A run works in the project. A replay works in a folder laid over it, with programs in a copy of
    it, or where these were recorded, in the files as they were then.
    """
    if script is None:
        return Workspace(options.project), None, options.sdd_dir
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="bernstein-replay-", ignore_cleanup_errors=True)
    )
    notes, scratch = Path(folder) / "notes", Path(folder).resolve() / "project"
    if recorded is not None and lanes is not None:
        lanes.put_up(options.replay_run_id, recorded, options.project, scratch)
        top = scratch / Path(recorded.folder).relative_to(recorded.work_tree.folder)
        around = Surroundings(recorded, scratch, lanes.places)
        return Workspace(top), Walls(top, around), notes
    if not prepared.command_tasks:
        scratch.mkdir()
        return Workspace(options.project, scratch), None, notes
    kept_away = shutil.ignore_patterns(".sdd", ".git")
    shutil.copytree(options.project, scratch, symlinks=True, ignore=kept_away)
    return Workspace(options.project, scratch), Walls(scratch), notes


def _seen(
    options: RunOptions, prepared: Prepared, lanes: RunLanes | None, now: float
) -> Seen | None:
    """What programs will see, if they are to be recorded."""
    if options.replay_run_id or not options.seed or not prepared.command_tasks or lanes is None:
        return None
    project = options.project.resolve()
    kept = keep(project)
    return Seen(look_around((), project, options.environment, now, kept.tree), kept)
