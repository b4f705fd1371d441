"""The peer's recording gaps are told apart from schedules that break the rules, by the vectors."""

from pathlib import Path

import pytest

from bernstein_formats.recording_gaps import (
    CLAIM_BEFORE_COMPLETION,
    GAPS,
    RETRY_UNDER_NEW_ID,
    schedule_findings,
)
from bernstein_formats.rederivation import UNDERIVABLE_STEP, rederive

DATA = Path(__file__).parent / "data"
JOURNALS = sorted((DATA / "re-derivation").glob("*/sdd/runs/*/journal.jsonl"))
REAL = DATA / "real-run" / "sdd" / "runs" / "20261130-163229" / "journal.jsonl"


def found_in(journal: Path) -> list[tuple[str, int]]:
    return [(each.reason, each.index) for each in schedule_findings([journal.read_bytes()])]


def case(number: int) -> Path:
    (journal,) = (each for each in JOURNALS if each.parts[-5].startswith(f"{number:03}-"))
    return journal


def test_a_claim_before_the_completion_of_its_own_tick_is_a_gap() -> None:
    assert found_in(case(105)) == [(CLAIM_BEFORE_COMPLETION, 4)]
    assert found_in(case(106)) == []


def test_a_retry_under_a_new_id_is_a_gap_in_plan_and_in_edges() -> None:
    assert found_in(case(107)) == [(RETRY_UNDER_NEW_ID, 6)]
    assert found_in(case(108)) == [(RETRY_UNDER_NEW_ID, 6)]
    assert found_in(case(109)) == []


def test_a_cycle_is_no_gap() -> None:
    assert found_in(case(110)) == [("dependency_not_completed", 2)]


def test_the_peers_real_run_has_gaps_and_nothing_else() -> None:
    found = found_in(REAL)
    assert {reason for reason, _ in found} == {RETRY_UNDER_NEW_ID}
    assert found[0] == (RETRY_UNDER_NEW_ID, 11)


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.parts[-5])
def test_a_run_has_findings_where_a_step_of_it_is_refused_and_the_first_is_that_step(
    journal: Path,
) -> None:
    answer = rederive([journal.read_bytes()], "r")
    if answer.reason_code in {"plan_missing", "journal_unreadable"}:
        return
    found = found_in(journal)
    if answer.reason_code == UNDERIVABLE_STEP:
        reason, index = found[0]
        assert index == answer.step_index
        assert reason == answer.rule or reason in GAPS
    else:
        assert found == []


def test_a_new_id_that_the_next_plan_does_not_name_breaks_the_rules() -> None:
    lines = case(107).read_bytes().splitlines(keepends=True)
    plan = next(line for line in lines if b"plan.graph.full" in line)
    assert [each.reason for each in schedule_findings([*lines, plan])] == ["task_not_in_plan"]
