"""Re-derivation: could the scheduler's rules have produced this journal, given plan and outcomes?

Rules: docs/formats/re-derivation.md. One pass over the bytes; what is kept grows with the plan, not
with the rows. Unlike the peer, rows are hashed under the profile that they declare.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_loosely
from bernstein_formats.derived_chain import ChainNote, DerivedChain
from bernstein_formats.errors import InvalidInput
from bernstein_formats.event_journal import link_bytes
from bernstein_formats.journal_reader import LineBlocks, Row, is_blank, parse_row
from bernstein_formats.paths import check_run_id
from bernstein_formats.schedule_rules import (
    ALREADY_CLAIMED,
    CLAIM_EVENT,
    OUTCOME_EVENTS,
    PLAN_EVENT,
    Refusal,
    ScheduleRules,
    task_id_of,
)

UNDERIVABLE_STEP: Final = "underivable_step"
HEAD_MISMATCH: Final = "head_mismatch"
PLAN_MISSING: Final = "plan_missing"
JOURNAL_UNREADABLE: Final = "journal_unreadable"
JOURNAL_NOT_FOUND: Final = "journal_not_found"

_LOSS_EVENTS: Final = frozenset(("agent_lost", "agent_reaped", "task_failed"))
_FOLLOWED_EVENTS: Final = frozenset((CLAIM_EVENT, PLAN_EVENT)) | OUTCOME_EVENTS | _LOSS_EVENTS
_LISTED_LINES: Final = 20
_KEPT_LOSSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rederivation:
    """The answer; the members up to `rule` are the peer's JSON, in its order.

    `notes` are the first differing chain members, of `note_count` in all. They are no verdict:
    that is what verification is for.
    """

    ok: bool
    run_id: str
    recorded_head: str = ""
    derived_head: str = ""
    step_count: int = 0
    step_index: int | None = None
    reason: str = ""
    reason_code: str = ""
    rule: str = ""
    notes: tuple[ChainNote, ...] = ()
    note_count: int = 0

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "ok": self.ok,
            "run_id": self.run_id,
            "recorded_head": self.recorded_head,
            "derived_head": self.derived_head,
            "step_count": self.step_count,
            "step_index": self.step_index,
            "reason": self.reason,
            "reason_code": self.reason_code,
            "rule": self.rule,
        }


def rederive(chunks: Iterable[bytes], run_id: str) -> Rederivation:
    """Walk a whole journal, given as its bytes in pieces of any size."""
    walk = _Walk()
    for lines in LineBlocks(chunks):
        walk.take(lines)
    refused = _refused_before_the_walk(walk, run_id)
    if refused is not None:
        reason_code, reason = refused
        return Rederivation(False, run_id, reason=reason, reason_code=reason_code)
    return walk.answer(run_id)


def journal_not_found(run_id: str, where: str) -> Rederivation:
    """Return the answer for a run without a journal; `where` is the path that was tried."""
    reason = f"journal not found: {where}"
    return Rederivation(False, run_id, reason=reason, reason_code=JOURNAL_NOT_FOUND)


def _refused_before_the_walk(walk: "_Walk", run_id: str) -> tuple[str, str] | None:
    if walk.unreadable.count:
        lines = walk.unreadable.text()
        return JOURNAL_UNREADABLE, f"journal has unreadable physical line(s): {lines}"
    if not walk.has_plan:
        return PLAN_MISSING, (
            f"run {run_id} recorded no {PLAN_EVENT} event, so there is no planning output"
            " to re-derive the coordination sequence from"
        )
    try:
        check_run_id(run_id)
    except InvalidInput as error:
        return JOURNAL_UNREADABLE, f"no journal can have this name: {error.message}"
    return None


class _Lines:
    """Numbers of unreadable lines, from 0: the first few and a count."""

    def __init__(self) -> None:
        self.count = 0
        self._listed: list[int] = []

    def add(self, line: int) -> None:
        self.count += 1
        if self.count <= _LISTED_LINES:
            self._listed.append(line)

    def text(self) -> str:
        more = self.count - len(self._listed)
        return ", ".join(map(str, self._listed)) + (f" and {more} more" if more else "")


class _Walk:
    """The rows so far; after the first refused one they are only read."""

    def __init__(self) -> None:
        self.has_plan = False
        self.unreadable = _Lines()
        self._line = -1
        self._count = 0
        self._last_row = b"{}"
        self._rules = ScheduleRules()
        self._losses = _Losses()
        self._chain = DerivedChain()
        self._refused: tuple[int, Refusal, str] | None = None

    def take(self, lines: Iterable[bytes]) -> None:
        """Take whole lines without their ends."""
        remaining = iter(lines)
        for doubtful in iter(lambda: self._first_doubtful(remaining), None):
            self._take_one(doubtful)

    def _first_doubtful(self, lines: Iterator[bytes]) -> bytes | None:
        """Take rows while they are plain; give the first line that is not, untaken.

        This is the loop that decides the speed of a re-derivation; `_take_one` is its definition.
        """
        chain = self._chain
        if chain.given_up or self._refused is not None:
            return next(lines, None)
        judge_values, write, event_texts = chain.judge, chain.write, chain.event_texts
        index, head, last_row = self._count, chain.head, self._last_row
        doubtful = None
        for line in lines:
            try:
                row = parse_loosely(line)
                if type(row) is not dict or type(event := row.get("event")) is not str:
                    doubtful = line
                    break
                if not index:
                    chain.declare(row)
                    judge_values, write = chain.judge, chain.write
                take = row.pop
                take("ts", None)
                take("elapsed_s", None)
                stored_index, stored_prev = take("index", None), take("prev_hash", None)
                stored_payload, stored_event = take("payload_hash", None), take("event_hash", None)
                event_text = event_texts.get(event) or chain.event_text(event)
                if not judge_values(row.values()) or chain.given_up:
                    doubtful = line
                    break
                payload_hex = sha256(write(row)).hexdigest()
            except InvalidInput:
                doubtful = line
                break
            last_row = line
            if event in _FOLLOWED_EVENTS and not self._follow(index, event, row):
                index += 1
                break
            event_hex = sha256(link_bytes(head, event_text, payload_hex, index)).hexdigest()
            if (
                stored_event != event_hex
                or stored_payload != payload_hex
                or stored_prev != head
                or stored_index != index
            ):
                stored = stored_index, stored_prev, stored_payload, stored_event
                chain.compare(event, row, stored, (index, head, payload_hex, event_hex))
            head = event_hex
            index += 1
        self._line += index - self._count
        self._count, chain.head, self._last_row = index, head, last_row
        return doubtful if doubtful is not None else next(lines, None)

    def _take_one(self, line: bytes) -> None:
        """Take a line by the definition."""
        self._line += 1
        row = _row(line)
        if row is None:
            if not is_blank(line):
                self.unreadable.add(self._line)
            return
        self._last_row = line
        index = self._count
        self._count += 1
        self.has_plan = self.has_plan or row.get("event") == PLAN_EVENT
        if self._refused is not None:
            return
        if not index:
            self._chain.declare(row)
        event = str(row.get("event", ""))
        if event not in _FOLLOWED_EVENTS or self._follow(index, event, row):
            self._chain.add(index, event, row)

    def _follow(self, index: int, event: str, payload: Row) -> bool:
        """Take an event in by the rules; False if they refuse it."""
        self.has_plan = self.has_plan or event == PLAN_EVENT
        if event in _LOSS_EVENTS:
            self._losses.add(index, event, payload)
            return True
        refusal = self._rules.advance(event, payload)
        if refusal is not None:
            hint = self._losses.hint(refusal, self._rules.claimant(refusal.task_id))
            self._refused = index, refusal, f"step {index}: {refusal.text()}{hint}"
            return False
        self._losses.forget(event, payload)
        return True

    def answer(self, run_id: str) -> Rederivation:
        chain = self._chain
        last = _row(self._last_row) or {}
        answer = Rederivation(
            True,
            run_id,
            recorded_head=str(last.get("event_hash", "")),
            derived_head=chain.head,
            step_count=self._count,
            reason=f"re-derived {self._count} coordination step(s) to the recorded head",
            notes=tuple(chain.notes),
            note_count=chain.note_count,
        )
        if self._refused is not None:
            step, refusal, reason = self._refused
            return replace(
                answer,
                ok=False,
                step_count=step,
                step_index=step,
                reason=reason,
                reason_code=UNDERIVABLE_STEP,
                rule=refusal.rule,
            )
        if chain.given_up or chain.head != answer.recorded_head:
            index, difference = chain.difference or (None, "")
            reason = "re-derived head does not match the recorded head"
            reason += f"; {difference}" if difference else ""
            return replace(
                answer, ok=False, step_index=index, reason=reason, reason_code=HEAD_MISMATCH
            )
        return answer


def _row(line: bytes) -> Row | None:
    try:
        row = parse_row(line)
    except InvalidInput:
        return None
    return row if isinstance(row, dict) else None


class _Losses:
    """Where agents and the tasks they held were recorded as lost: for the explanation only."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], tuple[int, str]] = {}

    def add(self, index: int, event: str, payload: Row) -> None:
        if len(self._steps) < _KEPT_LOSSES:
            self._steps[_subject(payload)] = index, event

    def forget(self, event: str, payload: Row) -> None:
        """Start afresh when a task is claimed: what was lost before has no part in it."""
        if self._steps and event == CLAIM_EVENT:
            self._steps.pop(("task", task_id_of(payload)), None)
            self._steps.pop(("agent", str(payload.get("agent_id"))), None)

    def hint(self, refusal: Refusal, claimant: str) -> str:
        """Say, of a second claim, that the first claimant was lost and nobody released the task."""
        task, agent = ("task", refusal.task_id), ("agent", claimant)
        lost = self._steps.get(task) or self._steps.get(agent)
        if refusal.rule != ALREADY_CLAIMED or lost is None:
            return ""
        step, event = lost
        return (
            f"; its claimant {claimant} was lost at step {step} ({event})"
            " and no task_retried row released the claim"
        )


def _subject(payload: Row) -> tuple[str, str]:
    """Say whom a loss befell: a task where the row names one, else an agent."""
    if "task_id" in payload:
        return "task", task_id_of(payload)
    return "agent", str(payload.get("agent_id"))
