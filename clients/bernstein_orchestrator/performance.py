"""One run from its first row to its last, with an orderly end whatever comes in between."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_client.recorder import Account, Recording
from bernstein_client.values import FinishedRun
from bernstein_formats.errors import BernsteinError
from bernstein_formats.journal_reader import load_events_strictly
from bernstein_orchestrator.activation import Prepared
from bernstein_orchestrator.agents import ModelCalls, Programs
from bernstein_orchestrator.context import Context, LiveContext, RecordedContext
from bernstein_orchestrator.events import (
    end_events,
    graph_events,
    start_events,
)
from bernstein_orchestrator.ledger import Ledger
from bernstein_orchestrator.loop import Loop, Workplace
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.plan import SignalType
from bernstein_orchestrator.plan_graph import Task
from bernstein_orchestrator.ports import Journal, Recorder
from bernstein_orchestrator.progress import (
    COMPLETED,
    FAILED,
    INTERRUPTED,
    Noted,
    ReplayResult,
    Report,
    RunResult,
    RunStarted,
    warner,
)
from bernstein_orchestrator.replay import Script, first_difference
from bernstein_orchestrator.schedule import Schedule
from bernstein_orchestrator.traffic import Traffic
from bernstein_orchestrator.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Performance:
    """A run that has a folder: from its first row to its last."""

    options: RunOptions
    prepared: Prepared
    script: Script | None
    journal: Journal
    ledger: Ledger
    schedule: Schedule
    report: Report
    run_id: str
    room: int
    traffic: Traffic | None = None

    @property
    def folder(self) -> Path:
        return self.options.sdd_dir / "runs" / self.run_id

    @property
    def name_in_rows(self) -> str:
        """Return the run id that rows carry: in a replay the recorded one."""
        return self.script.run_id if self.script is not None else self.run_id

    def announce(self) -> None:
        """Say what starts, and what is not recorded."""
        options, prepared = self.options, self.prepared
        is_recorded = bool(options.seed) and prepared.uses_models and self.script is None
        self.report(
            RunStarted(
                self.run_id,
                self.folder,
                len(prepared.graph.tasks),
                self.room,
                options.replay_run_id,
                is_recorded,
            )
        )
        source = prepared.max_agents_from
        if self.script is not None and not options.max_agents:
            source = "the recording"
        self.report(Noted(f"up to {self.room} agents at a time ({source})"))
        if self.script is None and not is_recorded and (prepared.uses_models or not self.traffic):
            self.report(Noted(_why_unrecorded(prepared)))
        if self.script is None and prepared.command_tasks and not self.traffic:
            self.report(Noted(_PROGRAMS_UNRECORDED))
        if self.script is not None and _takes_test_verdicts(prepared):
            self.report(Noted("verdicts of test_passes are taken from the recording"))

    def carry_out(
        self,
        workspace: Workspace,
        programs: Programs,
        stop: threading.Event,
        recorder: Callable[[], Recorder],
        recording: Recording | None,
    ) -> RunResult:
        """Run to the end; an error is raised once the run has been ended as failed."""
        calls: ModelCalls | None = None
        loop: Loop | None = None
        try:
            self._append_start()
            if self.prepared.uses_models:
                calls = self._open_session(recorder(), recording)
            place = Workplace(
                workspace=workspace,
                context=self._context(workspace),
                calls=calls,
                programs=programs,
                traffic=self.traffic,
                script=self.script,
                report=self.report,
                stop=stop,
                is_deterministic=bool(self.options.seed or self.options.replay_run_id),
            )
            loop = Loop(self.prepared, self.ledger, self.schedule, place, self.room)
            loop.run()
        except BernsteinError:
            stop.set()  # agents that still run are ended; nobody waits for their work
            with suppress(BernsteinError):
                self._abandon(loop, calls)
            raise
        outcome = self._outcome(loop, stop)
        kept_to_it = not loop.divergence and not stop.is_set()
        if loop.divergence:
            stop.set()  # nobody waits for what still runs
        account = self._end(outcome, loop, calls, script=self.script if kept_to_it else None)
        return self._result(outcome, loop, account, self._finish())

    def _abandon(self, loop: Loop | None, calls: ModelCalls | None) -> None:
        """End a run that failed in the middle as far as that is possible."""
        account = self._end(FAILED, loop, calls, script=None)
        if account is not None and account.coverage_line:
            self.report(Noted(account.coverage_line))
        self._finish()

    def _finish(self) -> FinishedRun:
        finished = self.journal.finish_run(self.run_id, spine_seal=self.options.spine_seal)
        for note in finished.notes:
            self.report(Noted(f"note: {note}"))
        return finished

    def _append_start(self) -> None:
        script, prepared = self.script, self.prepared
        around = script.surroundings if script is not None else prepared.surroundings
        extensions = script.extension_set if script is not None else prepared.extension_set
        self.ledger.append(
            start_events(self.name_in_rows, self.schedule.max_agents, around, extensions)
        )
        if self.traffic is not None:
            self.ledger.append([self.traffic.begin()])
        # One by one: the graph's row may fill a message alone.
        for event in graph_events(prepared.graph, prepared.config.goal):
            self.ledger.append([event])

    def _open_session(self, recorder: Recorder, recording: Recording | None) -> ModelCalls:
        options = self.options
        may_dial = self.script is None or options.allow_live_miss
        session = recorder.open_session(
            self.run_id,
            replay_run_id=options.replay_run_id,
            allow_live_miss=options.allow_live_miss,
            record=bool(options.seed) and self.script is None,
            providers=options.providers if may_dial else (),
            expected=recording,
        )
        return ModelCalls(recorder, session.session_id)

    def _context(self, workspace: Workspace) -> Context:
        if self.script is None:
            return LiveContext(workspace)
        return RecordedContext(
            workspace,
            self.script.surroundings.git_sha,
            self.script.contexts,
            warner(self.report),
        )

    def _outcome(self, loop: Loop, stop: threading.Event) -> str:
        schedule, script = self.schedule, self.script
        if schedule.is_over:
            return FAILED if schedule.failed or schedule.undone else COMPLETED
        if stop.is_set():
            return INTERRUPTED
        if script is not None and not loop.divergence and script.end:
            return script.end
        return FAILED

    def _end(
        self, outcome: str, loop: Loop | None, calls: ModelCalls | None, *, script: Script | None
    ) -> Account | None:
        """Release what is held, bind the recording, write the last rows.

        `script` is that of a replay which kept to it: then the end, too, is as recorded.
        """
        if loop is not None and (script is None or script.has_released):
            loop.release()
        account = None if calls is None else calls.close()
        recording = self._recording(account) if script is None else script.calls
        if recording is not None:
            self.ledger.append([recording.event()])
        if self.traffic is not None:
            self.traffic.leave()
            if events := self.traffic.recording_events():
                self.ledger.append(events)
        if script is None or script.end:
            self.ledger.append(
                end_events(
                    self.name_in_rows,
                    ticks=self.schedule.tick,
                    head=self.ledger.head,
                    outcome=outcome,
                    residual=loop.residual if loop is not None else (),
                    checked=loop.agent_count if loop is not None else 0,
                )
            )
        return account

    def _recording(self, account: Account | None) -> Recording | None:
        """What was recorded; None when nothing was to be, which is not the same as no call."""
        return account.recording if account is not None and self.options.seed else None

    def _result(
        self, outcome: str, loop: Loop, account: Account | None, finished: FinishedRun
    ) -> RunResult:
        schedule = self.schedule
        replay = None
        if self.script is not None:
            replay = self._replay_result(self.script, loop, account, finished)
        return RunResult(
            run_id=self.run_id,
            folder=self.folder,
            outcome=outcome,
            completed=_titles(schedule.completed),
            failed=_titles(schedule.failed),
            undone=_titles(schedule.undone),
            head_hash_hex=finished.head_hash_hex,
            row_count=finished.row_count,
            recording=self._recording(account) if replay is None else None,
            replay=replay,
            next_step=_next_step(self.options, outcome),
            has_programs=bool(self.prepared.command_tasks),
        )

    def _replay_result(
        self, script: Script, loop: Loop, account: Account | None, finished: FinishedRun
    ) -> ReplayResult:
        difference = loop.divergence
        if finished.head_hash_hex != script.head and not difference:
            rows = load_events_strictly(self.journal.read_journal(self.run_id))
            difference = first_difference(script.rows, rows)
        return ReplayResult(
            replay_of=self.options.replay_run_id,
            recorded_head=script.head,
            head=finished.head_hash_hex,
            first_difference=difference,
            coverage_line=account.coverage_line if account is not None else "",
            hit_count=account.hit_count if account is not None else 0,
            miss_count=account.miss_count if account is not None else 0,
            unused_calls=account.unused_calls if account is not None else (),
            unused_count=account.unused_count if account is not None else 0,
            unrecorded_tasks=_titles(() if self.traffic else self.prepared.command_tasks),
            lanes=tuple(self.traffic.accounts if self.traffic is not None else ()),
            unvouched=script.unvouched,
        )


_PROGRAMS_UNRECORDED: Final = (
    "what programs say to their models is not recorded: set BERNSTEIN_DETERMINISTIC_SEED (any text)"
    " and install the extra `proxy` to record it"
)


def _why_unrecorded(prepared: Prepared) -> str:
    if not prepared.uses_models:
        return "no step makes an internal model call, so no model call is recorded"
    return (
        "model calls are not recorded, so this run cannot be replayed;"
        " set BERNSTEIN_DETERMINISTIC_SEED (any text) to record them"
    )


def _takes_test_verdicts(prepared: Prepared) -> bool:
    return any(
        signal.type is SignalType.TEST_PASSES
        for task in prepared.graph.tasks
        for signal in task.step.signals
    )


def _titles(tasks: tuple[Task, ...]) -> tuple[str, ...]:
    return tuple(task.step.title for task in tasks)


def _next_step(options: RunOptions, outcome: str) -> str:
    if options.replay_run_id or outcome == COMPLETED:
        return ""
    return f"`{options.command}` starts again, as a new run, with the files as they are now"
