"""Which task is claimed when: a pure state machine from outcomes to rounds. No I/O, no clock.

Each round commits at most one attempt's outcome and then the claims that it made possible, so
that no effect is recorded before the fact that allowed it.
Rules: docs/formats/re-derivation.md, sections 4 and 6.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from bernstein_orchestrator.plan_graph import Task


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at a task, counted from 1."""

    task: Task
    attempt: int

    @property
    def agent_id(self) -> str:
        """Name the attempt from facts of the plan only."""
        return f"{self.task.task_id}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt; without failed signals the task is completed."""

    task_id: str
    failed_signals: tuple[str, ...] = ()

    @property
    def is_completed(self) -> bool:
        return not self.failed_signals


@dataclass(frozen=True, slots=True)
class Round:
    """What one tick commits, in this order: an outcome, then releases, then claims."""

    tick: int
    ended: tuple[Claim, Outcome] | None = None
    is_retried: bool = False
    released: tuple[Claim, ...] = ()
    claims: tuple[Claim, ...] = ()


class Schedule:
    """The tasks of a plan on their way; equal outcomes in equal order give equal rounds."""

    def __init__(self, tasks: Iterable[Task], *, max_agents: int, max_retries: int) -> None:
        """Begin before the first round."""
        self._position: dict[str, int] = {}
        self._tasks: dict[str, Task] = {}
        self._missing: dict[str, set[str]] = {}
        self._dependants: dict[str, list[str]] = {}
        self._attempts: dict[str, int] = {}
        self._held: dict[str, Claim] = {}
        self._completed: set[str] = set()
        self._failed: set[str] = set()
        self._ready: list[tuple[int, int, str]] = []
        self.max_agents = max_agents
        self._max_retries = max_retries
        self.tick = 0
        for position, task in enumerate(tasks):
            self._add(position, task)

    def _add(self, position: int, task: Task) -> None:
        self._tasks[task.task_id] = task
        self._position[task.task_id] = position
        self._attempts[task.task_id] = 0
        self._missing[task.task_id] = set(task.depends_on)
        for dependency in task.depends_on:
            self._dependants.setdefault(dependency, []).append(task.task_id)
        if not task.depends_on:
            self._offer(task)

    @property
    def held(self) -> tuple[Claim, ...]:
        """The attempts that run, in the order of their claims."""
        return tuple(self._held.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing can be claimed."""
        return not self._held and not self._ready

    @property
    def completed(self) -> tuple[Task, ...]:
        return self._in_plan_order(self._completed)

    @property
    def failed(self) -> tuple[Task, ...]:
        """The tasks that failed for good."""
        return self._in_plan_order(self._failed)

    @property
    def undone(self) -> tuple[Task, ...]:
        """The tasks that neither completed nor failed: they wait for others, or were cut off."""
        return self._in_plan_order(self._tasks.keys() - self._completed - self._failed)

    def holds(self, task_id: str) -> Claim | None:
        return self._held.get(task_id)

    def first_round(self) -> Round:
        self.tick += 1
        return Round(self.tick, claims=self._claims())

    def commit(self, outcome: Outcome, *, may_retry: bool | None = None) -> Round:
        """Take in the outcome of an attempt that is held, and claim what is possible now.

        `may_retry` says what a recording says of a failed attempt; None: the bound decides.
        """
        claim = self._held.pop(outcome.task_id)
        if may_retry is None:
            may_retry = claim.attempt <= self._max_retries
        is_retried = may_retry and not outcome.is_completed
        if is_retried:
            self._offer(claim.task)
        elif outcome.is_completed:
            self._complete(outcome.task_id)
        else:
            self._failed.add(outcome.task_id)
        self.tick += 1
        return Round(self.tick, (claim, outcome), is_retried, claims=self._claims())

    def release(self) -> Round | None:
        """Give back what is held and claim nothing more; None when nothing is held."""
        released = self.held
        self._held.clear()
        if not released:
            return None
        self.tick += 1
        return Round(self.tick, released=released)

    def _complete(self, task_id: str) -> None:
        self._completed.add(task_id)
        for dependant in self._dependants.get(task_id, ()):
            missing = self._missing[dependant]
            missing.discard(task_id)
            if not missing:
                self._offer(self._tasks[dependant])

    def _offer(self, task: Task) -> None:
        entry = task.step.priority, self._position[task.task_id], task.task_id
        heapq.heappush(self._ready, entry)

    def _claims(self) -> tuple[Claim, ...]:
        """Claim by priority number, then plan order, while there is room."""
        claims = []
        while self._ready and len(self._held) < self.max_agents:
            *_, task_id = heapq.heappop(self._ready)
            self._attempts[task_id] += 1
            claim = Claim(self._tasks[task_id], self._attempts[task_id])
            self._held[task_id] = claim
            claims.append(claim)
        return tuple(claims)

    def _in_plan_order(self, task_ids: Iterable[str]) -> tuple[Task, ...]:
        return tuple(self._tasks[each] for each in sorted(task_ids, key=self._position.__getitem__))
