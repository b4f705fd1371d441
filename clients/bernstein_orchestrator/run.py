"""`bernstein run`: everything is refused that can be refused, then a run gets its folder."""

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

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
from bernstein_orchestrator.replay_activation import activate_replay, offline_commands
from bernstein_orchestrator.run_folder import create_run
from bernstein_orchestrator.schedule import Schedule
from bernstein_orchestrator.sidecars import Sidecars
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
) -> RunResult:
    """Run or replay a plan; `clock` gives Unix seconds, `recorder` connects when it is needed.

    `audit` appends to the audit log; a replay has nothing to tell it.

    What is refused raises before a run exists. An error in the middle is raised after the run has
    been ended as failed; ReplayMissError is one. Setting `stop`, Ctrl-C, SIGTERM and SIGHUP end it
    as interrupted; a second signal raises KeyboardInterrupt, and no program is left at work.
    """
    stop = stop or threading.Event()
    warn = warner(report)
    prepared = prepare(options, warn)
    script, recording = None, None
    if options.replay_run_id:
        script, recording = activate_replay(options, prepared, journal, recorder(), warn)
    prefix = offline_commands(options, prepared)
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop, lambda: report(Noted(_STOPPING))))
        workspace = _workspace(options, prepared, script, stack)
        run_id = create_run(options, prepared, script, journal, clock())
        max_agents = script.max_agents if script is not None else prepared.max_agents
        mirror = Mirror(run_id, audit, warn) if audit is not None and script is None else None
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
        )
        programs = Programs(
            workspace, options.environment, stop, prefix, Sidecars(options.sdd_dir, run_id)
        )
        stack.callback(programs.end)
        performance.announce()
        return performance.carry_out(workspace, programs, stop, recorder, recording)


def _workspace(
    options: RunOptions, prepared: Prepared, script: Script | None, stack: ExitStack
) -> Workspace:
    """Work in the project; a replay works in a folder laid over it, programs in a copy of it."""
    if script is None:
        return Workspace(options.project)
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="bernstein-replay-", ignore_cleanup_errors=True)
    )
    scratch = Path(folder) / "project"
    if prepared.command_tasks:
        kept_away = shutil.ignore_patterns(".sdd", ".git")
        shutil.copytree(options.project, scratch, symlinks=True, ignore=kept_away)
    else:
        scratch.mkdir()
    return Workspace(options.project, scratch)
