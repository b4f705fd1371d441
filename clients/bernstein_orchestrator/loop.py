"""The run itself: claims become agents at work, their results become rounds, one after another.

Everything that a row can depend on happens in this one thread, in the order of the rounds: files
are read when a task is claimed and written when its outcome is committed. Only the agents
themselves run side by side.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bernstein_formats.errors import InvalidInput, StoreFailed
from bernstein_formats.provider_sidecar import capture_failed_event, mutation_events
from bernstein_orchestrator.activation import Prepared
from bernstein_orchestrator.agents import MODEL_CALL_FAILED, ModelCalls, Programs, Work
from bernstein_orchestrator.answers import check_unicode, files_of
from bernstein_orchestrator.context import Context, attachment_of
from bernstein_orchestrator.crew import Crew
from bernstein_orchestrator.events import ClaimFacts, Endpoint, Event, round_events
from bernstein_orchestrator.ledger import Ledger
from bernstein_orchestrator.progress import Progress, TaskFinished, TaskStarted, Warned
from bernstein_orchestrator.prompt import ContextFile, Finished, PromptInputs, task_prompt
from bernstein_orchestrator.replay import RecordedOutcome, Script
from bernstein_orchestrator.schedule import Claim, Outcome, Round, Schedule
from bernstein_orchestrator.signals import TEST_TIMEOUT_SECONDS, Checks
from bernstein_orchestrator.traffic import Traffic
from bernstein_orchestrator.workspace import Workspace

NOT_WRITTEN: Final = "agent: not written: "


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a run plays: its files, its agents, and whom it tells; `script` only in a replay."""

    workspace: Workspace
    context: Context
    calls: ModelCalls | None
    programs: Programs
    traffic: Traffic | None
    script: Script | None
    report: Callable[[Progress], None]
    stop: threading.Event
    # Whether a change that a provider made behind the run's back fails its verification.
    is_deterministic: bool = False


class Loop:
    """One pass over a plan, from the first claim until nothing more is possible."""

    def __init__(
        self, prepared: Prepared, ledger: Ledger, schedule: Schedule, place: Workplace, room: int
    ) -> None:
        """`room` is how many agents work at a time, whatever was claimed."""
        self._prepared = prepared
        self._ledger = ledger
        self._schedule = schedule
        self._place = place
        self._crew: Crew[Work] = Crew(room, place.stop)
        self._checks = Checks(
            place.workspace,
            ask=self._ask_judge,
            shell=partial(place.programs.shell, timeout_seconds=TEST_TIMEOUT_SECONDS),
            warn=self._warn,
        )
        script = place.script
        outcomes = script.outcomes if script is not None else ()
        self._recorded = deque(outcomes)
        self._recorded_by_agent = {each.agent_id: each for each in outcomes}
        self._titles = {task.task_id: task.step.title for task in prepared.graph.tasks}
        self._adapters_seen: set[str] = set()
        self._answers: dict[str, str | None] = {}
        self._failed_before: dict[str, tuple[str, ...]] = {}
        self.residual: list[str] = []
        self.agent_count = 0
        self.divergence = ""

    def run(self) -> None:
        """Go on until the plan is over, `stop` is set, or a replay's script ends or is left."""
        self._commit(self._schedule.first_round(), Work())
        while not self._schedule.is_over and not self._place.stop.is_set():
            if self._place.script is not None and not self._recorded:
                return
            recorded = self._recorded.popleft() if self._recorded else None
            ended = self._next(recorded)
            if ended is None:
                return
            claim, work = ended
            if work.lane is not None and self._place.traffic is not None:
                self._place.traffic.settle(work.lane)
            outcome = self._outcome(claim, work, recorded)
            if outcome is None or self._leaves_the_script(claim, outcome, recorded):
                return
            may_retry = recorded.is_retried if recorded is not None else None
            self._commit(self._schedule.commit(outcome, may_retry=may_retry), work)

    def release(self) -> None:
        """Give back the tasks that are held, so that no claim stays open."""
        self._crew.settle()
        this = self._schedule.release()
        if this is not None:
            self._ledger.append(round_events(this, (), self._adapters_seen))

    def _next(self, recorded: RecordedOutcome | None) -> tuple[Claim, Work] | None:
        """Wait for the attempt whose turn it is; None when stopped or when a script is left."""
        if recorded is None:
            done = self._crew.take()
        else:
            held = self._schedule.holds(recorded.task_id)
            if held is None or held.agent_id != recorded.agent_id:
                self.divergence = f"the recorded attempt {recorded.agent_id} was not claimed"
                return None
            if recorded.failed_signals == (MODEL_CALL_FAILED,):
                return held, Work(failure=MODEL_CALL_FAILED, detail="as recorded")
            done = self._crew.take(recorded.agent_id)
        if done is None or self._place.stop.is_set():
            return None
        if done.error is not None:
            raise done.error
        claim = self._schedule.holds(done.name.partition("-")[0])
        if done.result is None or claim is None:
            raise RuntimeError(f"the thread of agent {done.name} ended without a result")
        return claim, done.result

    def _outcome(
        self, claim: Claim, work: Work, recorded: RecordedOutcome | None
    ) -> Outcome | None:
        """Write what was made, check it; None when stopped meanwhile."""
        step = claim.task.step
        if work.left_processes:
            self.residual.append(claim.agent_id)
        if work.failure:
            return Outcome(claim.task.task_id, (work.failure,))
        was = recorded.failed_signals if recorded is not None else None
        if was and was[0].startswith(NOT_WRITTEN):
            return Outcome(claim.task.task_id, was)  # a fault of that machine, not of the answer
        try:
            shown = self._write(claim, work)
        except InvalidInput as error:
            return Outcome(claim.task.task_id, (f"agent: {error.message}",))
        except StoreFailed as error:
            if recorded is not None:
                raise
            return Outcome(claim.task.task_id, (f"{NOT_WRITTEN}{error.message}",))
        failed = self._checks.failed(step, claim.agent_id, shown, was)
        if failed is None:
            return None
        if not failed:
            self._answers[claim.task.task_id] = work.answer
        return Outcome(claim.task.task_id, failed)

    def _write(self, claim: Claim, work: Work) -> str:
        """Write a model's files and return its answer; of a program, return what it wrote."""
        step = claim.task.step
        workspace = self._place.workspace
        if work.answer is None:
            made = ((path, workspace.read(path) or b"") for path in step.files)
            return "\n".join(f"=== {path}\n{text.decode(errors='replace')}" for path, text in made)
        check_unicode(work.answer)
        for path, content in files_of(work.answer, step.files).items():
            workspace.write(path, content)
        return work.answer

    def _leaves_the_script(
        self, claim: Claim, outcome: Outcome, recorded: RecordedOutcome | None
    ) -> bool:
        if recorded is None or outcome.failed_signals == recorded.failed_signals:
            return False
        was, now = (
            ", ".join(each) or "completed"
            for each in (recorded.failed_signals, outcome.failed_signals)
        )
        self.divergence = (
            f"task {claim.task.step.title!r}, attempt {claim.attempt}:"
            f" recorded {was}; replayed {now}"
        )
        return True

    def _commit(self, this: Round, work: Work) -> None:
        """Append a round, and only then start the agents of its claims."""
        contexts = {claim.agent_id: self._context_of(claim) for claim in this.claims}
        facts = [self._facts(claim, contexts[claim.agent_id]) for claim in this.claims]
        about_provider = self._provider_events(this.ended[0], work) if this.ended else ()
        self._ledger.append(round_events(this, facts, self._adapters_seen, about_provider))
        self.agent_count += len(this.claims)
        if this.ended is not None:
            self._tell(this, work)
        for claim in this.claims:
            self._start(claim, contexts[claim.agent_id])

    def _provider_events(self, claim: Claim, work: Work) -> Sequence[Event]:
        """What a wrapper saw its provider do; a replay repeats what was recorded of it."""
        if self._place.script is not None:
            return self._place.script.provider_events.get(claim.agent_id, ())
        if work.observed is None:
            return ()
        strict = self._place.is_deterministic
        if work.observed.failure:
            text = f"what the provider did to {claim.agent_id} is not known"
            self._warn(f"{text}: {work.observed.failure}")
            failed = capture_failed_event(claim.agent_id, work.observed.failure)
            return (failed,) if strict else ()
        return mutation_events(work.observed.signals, claim.agent_id, is_deterministic=strict)

    def _context_of(self, claim: Claim) -> tuple[ContextFile, ...]:
        if claim.task.step.agent is not None:
            return ()
        paths = dict.fromkeys(self._prepared.plan.context_files)
        return tuple(self._place.context.file(claim.agent_id, path) for path in paths)

    def _facts(self, claim: Claim, context: tuple[ContextFile, ...]) -> ClaimFacts:
        skill = self._prepared.skills.get(claim.task.step.role)
        injects = skill is not None and claim.task.step.agent is None
        return ClaimFacts(
            claim=claim,
            endpoint=self._recorded_endpoint(self._prepared.endpoints[claim.task.task_id]),
            attachments=tuple(map(attachment_of, context)),
            skills=(skill.injected_members(),) if skill is not None and injects else (),
        )

    def _recorded_endpoint(self, endpoint: Endpoint) -> Endpoint:
        """Say where the model was when it was recorded: a replay calls nobody."""
        script = self._place.script
        if script is None:
            return endpoint
        return replace(endpoint, base_url=script.base_urls.get(endpoint.adapter, ""))

    def _start(self, claim: Claim, context: tuple[ContextFile, ...]) -> None:
        """Let an agent begin, unless the recording has no result of this attempt to come to."""
        step = claim.task.step
        if self._place.script is not None:
            recorded = self._recorded_by_agent.get(claim.agent_id)
            if recorded is None or recorded.failed_signals == (MODEL_CALL_FAILED,):
                return
        endpoint = self._prepared.endpoints[claim.task.task_id]
        if step.agent is not None:
            work = partial(self._place.programs.work, step.agent, claim.agent_id)
            agent = step.agent.command[0]
        else:
            assert self._place.calls is not None, "a session is open whenever a model is needed"
            prompt = self._prompt(claim, context)
            work = partial(self._place.calls.work, claim.agent_id, endpoint, prompt)
            agent = endpoint.model
        task_id = claim.task.task_id
        self._place.report(TaskStarted(task_id, step.title, claim.attempt, agent))
        self._crew.start(claim.agent_id, work, is_awaited=step.agent is not None)

    def _prompt(self, claim: Claim, context: tuple[ContextFile, ...]) -> str:
        skill = self._prepared.skills.get(claim.task.step.role)
        inputs = PromptInputs(
            goal=self._prepared.config.goal or self._prepared.plan.name,
            constraints=self._prepared.plan.constraints,
            step=claim.task.step,
            skill=skill.body if skill is not None else None,
            context=context,
            finished=tuple(
                Finished(self._titles[each], self._answers.get(each))
                for each in claim.task.depends_on
            ),
            failed_before=self._failed_before.get(claim.task.task_id, ()),
        )
        return task_prompt(inputs)

    def _ask_judge(self, lane: str, prompt: str) -> str:
        judge, calls = self._prepared.judge, self._place.calls
        assert judge is not None, "activation found who judges"
        assert calls is not None, "a session is open whenever a model is needed"
        text, warning = calls.ask(lane, judge, prompt)
        if warning:
            self._warn(warning)
        return text

    def _tell(self, this: Round, work: Work) -> None:
        assert this.ended is not None
        claim, outcome = this.ended
        self._failed_before[outcome.task_id] = outcome.failed_signals
        if work.detail and not outcome.failed_signals:
            self._warn(work.detail)
        finished = TaskFinished(
            outcome.task_id,
            claim.task.step.title,
            claim.attempt,
            outcome.failed_signals,
            this.is_retried,
            work.detail if outcome.failed_signals else "",
        )
        self._place.report(finished)

    def _warn(self, text: str) -> None:
        self._place.report(Warned(text))
