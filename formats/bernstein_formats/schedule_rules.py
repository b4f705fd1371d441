"""The rules that a schedule must keep: what may be claimed, and which outcome belongs to a claim.

Rules: docs/formats/re-derivation.md, section 6. Re-derivation applies them to recorded rows, the
orchestrator to its own next row before it is appended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bernstein_formats.canonical import JsonValue

PLAN_EVENT: Final = "plan.graph.full"
CLAIM_EVENT: Final = "task_claimed"
COMPLETED_EVENT: Final = "task_completed"
FAILED_EVENT: Final = "task_verification_failed"
RETRIED_EVENT: Final = "task_retried"
OUTCOME_EVENTS: Final = frozenset((COMPLETED_EVENT, FAILED_EVENT, RETRIED_EVENT))

NOT_IN_PLAN: Final = "task_not_in_plan"
ALREADY_CLAIMED: Final = "task_already_claimed"
DEPENDENCY_NOT_COMPLETED: Final = "dependency_not_completed"
OUTCOME_UNCLAIMED: Final = "outcome_for_unclaimed_task"

_LISTED_DEPENDENCIES: Final = 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an event may not come now; `missing` are the sorted dependencies that it lacks."""

    rule: str
    event: str
    task_id: str
    missing: tuple[str, ...] = ()

    def text(self) -> str:
        if self.rule == NOT_IN_PLAN:
            what = "was claimed but the recorded plan does not contain it"
        elif self.rule == ALREADY_CLAIMED:
            what = "was claimed while an earlier claim of it was still outstanding"
        elif self.rule == DEPENDENCY_NOT_COMPLETED:
            what = f"was claimed before its dependencies completed: {_listed(self.missing)}"
        else:
            return (
                f"{self.event} arrived for task {self.task_id}, which was not claimed at this step"
            )
        return f"task {self.task_id} {what}"


def _listed(task_ids: tuple[str, ...]) -> str:
    shown = ", ".join(task_ids[:_LISTED_DEPENDENCIES])
    more = len(task_ids) - _LISTED_DEPENDENCIES
    return f"{shown} and {more} more" if more > 0 else shown


class ScheduleRules:
    """Plan, claims and completions so far; grows with the plan, not with the number of events."""

    def __init__(self) -> None:
        # Every planned task has an entry. Values stay as recorded until a claim asks for them.
        self._depends_on: dict[str, JsonValue] = {}
        self._claimed: dict[str, JsonValue] = {}  # each with the agent that holds it
        self._completed: set[str] = set()

    def claimant(self, task_id: str) -> str:
        """Return the agent that holds a claimed task."""
        return str(self._claimed.get(task_id))

    def refusal(self, event: str, payload: Mapping[str, JsonValue]) -> Refusal | None:
        """Return why this event may not come now, or None; changes nothing."""
        if event == CLAIM_EVENT:
            return self._claim_refusal(task_id_of(payload))
        if event in OUTCOME_EVENTS and task_id_of(payload) not in self._claimed:
            return Refusal(OUTCOME_UNCLAIMED, event, task_id_of(payload))
        return None

    def advance(self, event: str, payload: Mapping[str, JsonValue]) -> Refusal | None:
        """Take an event in, unless it is refused; events of other kinds change nothing."""
        if event == CLAIM_EVENT:
            return self._claim(task_id_of(payload), payload.get("agent_id"))
        if event in OUTCOME_EVENTS:
            return self._settle(event, task_id_of(payload))
        if event == PLAN_EVENT:
            self._fold(payload.get("nodes"))
        return None

    def assume(self, event: str, payload: Mapping[str, JsonValue]) -> None:
        """Take in an event that was refused, for whoever goes on behind it."""
        if event == CLAIM_EVENT:
            self._claimed[task_id_of(payload)] = payload.get("agent_id")

    def _claim(self, task_id: str, agent_id: JsonValue) -> Refusal | None:
        refusal = self._claim_refusal(task_id)
        if refusal is None:
            self._claimed[task_id] = agent_id
        return refusal

    def _claim_refusal(self, task_id: str) -> Refusal | None:
        if self._depends_on and task_id not in self._depends_on:
            return Refusal(NOT_IN_PLAN, CLAIM_EVENT, task_id)
        if task_id in self._claimed:
            return Refusal(ALREADY_CLAIMED, CLAIM_EVENT, task_id)
        depends_on = self._depends_on.get(task_id)
        if not isinstance(depends_on, list) or self._completed.issuperset(map(str, depends_on)):
            return None
        missing = [each for each in map(str, depends_on) if each not in self._completed]
        return Refusal(DEPENDENCY_NOT_COMPLETED, CLAIM_EVENT, task_id, tuple(sorted(missing)))

    def _settle(self, event: str, task_id: str) -> Refusal | None:
        if task_id not in self._claimed:
            return Refusal(OUTCOME_UNCLAIMED, event, task_id)
        if event != FAILED_EVENT:
            del self._claimed[task_id]
        if event == COMPLETED_EVENT:
            self._completed.add(task_id)
        else:
            self._completed.discard(task_id)
        return None

    def _fold(self, nodes: JsonValue) -> None:
        """Add the nodes; one that is there already gets its dependencies anew, none is removed."""
        if not isinstance(nodes, list):
            return
        for node in nodes:
            if isinstance(node, dict):
                task_id = node.get("id", "")
                if task_id != "":
                    self._depends_on[str(task_id)] = node.get("depends_on")


def task_id_of(payload: Mapping[str, JsonValue]) -> str:
    """Return the task that an event is about: ids are compared as the text Python makes of them."""
    return str(payload.get("task_id", ""))
