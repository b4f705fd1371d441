"""What the peer is known to record in an order, or under an id, that its own rules refuse.

Its runs are faithful and do not re-derive all the same (docs/formats/re-derivation.md). Two habits
are told apart here from a schedule that breaks the rules: within a tick claims are written before
the completions that allowed them, and a task that is retried goes on under a new id, which plan and
edges learn of late or never. A walk that allows for both names each such row, and whatever is left.
The verdict of a re-derivation stays what it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.journal_reader import Row, accepted_rows
from bernstein_formats.schedule_rules import (
    CLAIM_EVENT,
    COMPLETED_EVENT,
    DEPENDENCY_NOT_COMPLETED,
    NOT_IN_PLAN,
    OUTCOME_EVENTS,
    OUTCOME_UNCLAIMED,
    PLAN_EVENT,
    RETRIED_EVENT,
    Refusal,
    ScheduleRules,
    task_id_of,
)

CLAIM_BEFORE_COMPLETION: Final = "claim_before_completion"
RETRY_UNDER_NEW_ID: Final = "retry_under_new_id"
GAPS: Final = frozenset((CLAIM_BEFORE_COMPLETION, RETRY_UNDER_NEW_ID))

_TICK_EVENT: Final = "tick_start"
_LISTED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class ScheduleFinding:
    """A row that the rules refuse: one of GAPS, or the rule where it is none of them."""

    reason: str
    index: int


def schedule_findings(chunks: Iterable[bytes]) -> tuple[ScheduleFinding, ...]:
    """Walk a whole journal; the first findings, in the order of its rows."""
    walk = _Walk()
    for index, (_, row) in enumerate(accepted_rows(chunks)):
        walk.take(index, str(row.get("event", "")), row)
    return walk.findings()


class _Walk:
    """The schedule so far, one tick at a time; grows with the plan and with the largest tick."""

    def __init__(self) -> None:
        self._rules = ScheduleRules()
        self._tick: list[tuple[int, str, Row]] = []
        self._planned: set[str] = set()
        self._claimed: set[str] = set()
        self._has_ticks = False
        self._has_retry = False
        # Tasks that may stand in for another one: those that appeared after a retry.
        self._new: set[str] = set()
        self._done_new: set[str] = set()
        self._stands_for: dict[str, str] = {}
        # Rows about tasks that no plan has named yet, until the next plan tells.
        self._unplanned: dict[str, list[int]] = {}
        self._found: dict[int, str] = {}

    def take(self, index: int, event: str, row: Row) -> None:
        if event == _TICK_EVENT:
            self._end_tick()
            self._has_ticks = True
        elif event == CLAIM_EVENT or event in OUTCOME_EVENTS:
            self._tick.append((index, event, row))
        elif event == PLAN_EVENT:
            # It stands before all else in its tick; what a vector has before it is a tick, too.
            self._end_tick()
            self._plan(row)

    def findings(self) -> tuple[ScheduleFinding, ...]:
        self._end_tick()
        listed = sorted(self._found.items())[:_LISTED_MAX]
        return tuple(ScheduleFinding(reason, index) for index, reason in listed)

    def _end_tick(self) -> None:
        """Take the rows of a tick, knowing those that are written after a claim that needs them."""
        completes = self._completed_in_tick()
        for index, event, row in self._tick:
            refusal = self._rules.advance(event, row)
            if refusal is not None:
                self._found[index] = self._reason(index, refusal, completes)
                self._rules.assume(event, row)
            self._note(event, task_id_of(row))
        self._tick.clear()

    def _completed_in_tick(self) -> set[str]:
        """Without ticks nobody knows what was written at once."""
        if not self._has_ticks:
            return set()
        rows = (row for _, event, row in self._tick if event == COMPLETED_EVENT)
        return self._claimed.intersection(map(task_id_of, rows))

    def _reason(self, index: int, refusal: Refusal, completes: set[str]) -> str:
        if refusal.rule == DEPENDENCY_NOT_COMPLETED:
            late = {each for each in refusal.missing if each not in completes}
            if not late:
                return CLAIM_BEFORE_COMPLETION
            return RETRY_UNDER_NEW_ID if self._are_stood_for(late) else refusal.rule
        is_new = refusal.task_id not in self._planned
        retried = refusal.rule == OUTCOME_UNCLAIMED and refusal.event == RETRIED_EVENT
        if is_new and (retried or (refusal.rule == NOT_IN_PLAN and self._has_retry)):
            self._unplanned.setdefault(refusal.task_id, []).append(index)
            return RETRY_UNDER_NEW_ID
        return refusal.rule

    def _are_stood_for(self, missing: set[str]) -> bool:
        """Whether each of these was begun, and another task that came of a retry was completed."""
        for task_id in sorted(missing - self._stands_for.keys()):
            free = self._done_new - set(self._stands_for.values())
            if task_id not in self._claimed or not free:
                return False
            self._stands_for[task_id] = min(free)
        return True

    def _note(self, event: str, task_id: str) -> None:
        if event == CLAIM_EVENT:
            self._claimed.add(task_id)
            if self._has_retry and task_id not in self._planned:
                self._new.add(task_id)
        elif event == RETRIED_EVENT:
            self._has_retry = True
        elif event == COMPLETED_EVENT and task_id in self._new:
            self._done_new.add(task_id)

    def _plan(self, row: Row) -> None:
        self._rules.advance(PLAN_EVENT, row)
        named = _ids(row.get("nodes"))
        if self._has_retry:
            self._new |= named - self._planned - self._claimed
        self._planned |= named
        for task_id, indexes in self._unplanned.items():
            if task_id not in named:
                for index in indexes:
                    self._found[index] = NOT_IN_PLAN
        self._unplanned.clear()


def _ids(nodes: JsonValue) -> set[str]:
    if not isinstance(nodes, list):
        return set()
    return {str(node["id"]) for node in nodes if isinstance(node, dict) and node.get("id", "")}
