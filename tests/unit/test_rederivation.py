"""The scheduling rules by themselves, and what the answer says beyond the vectors."""

import json

import pytest

from bernstein_formats.canonical import JsonValue, Profile
from bernstein_formats.event_journal import payload_hash
from bernstein_formats.rederivation import journal_not_found, rederive
from bernstein_formats.schedule_rules import Refusal, ScheduleRules


def planned(**depends_on: list[JsonValue]) -> ScheduleRules:
    rules = ScheduleRules()
    nodes: list[JsonValue] = [{"id": name, "depends_on": each} for name, each in depends_on.items()]
    rules.advance("plan.graph.full", {"nodes": nodes})
    return rules


def test_asking_changes_nothing():
    rules = planned(a=[])
    assert rules.refusal("task_claimed", {"task_id": "a"}) is None
    assert rules.refusal("task_claimed", {"task_id": "a"}) is None
    assert rules.refusal("task_completed", {"task_id": "a"}) is not None


def test_a_refused_event_changes_nothing():
    rules = planned(a=[], b=["a"])
    assert rules.advance("task_claimed", {"task_id": "b"}) is not None
    assert rules.advance("task_claimed", {"task_id": "a"}) is None
    assert rules.advance("task_completed", {"task_id": "a"}) is None
    assert rules.advance("task_claimed", {"task_id": "b"}) is None


def test_a_long_list_of_dependencies_is_cut_in_the_text_and_whole_in_the_value():
    rules = planned(a=[f"d{at:03}" for at in range(50)])
    refusal = rules.advance("task_claimed", {"task_id": "a"})
    assert isinstance(refusal, Refusal)
    assert len(refusal.missing) == 50
    assert refusal.text().endswith("d018, d019 and 30 more")


def row(event: str, **payload: JsonValue) -> bytes:
    return json.dumps({"event": event, **payload}).encode() + b"\n"


PLAN = row("plan.graph.full", nodes=[])


def test_a_missing_journal_is_answered_with_all_nine_members():
    document = journal_not_found("r", "/somewhere/journal.jsonl").as_json()
    assert len(document) == 9
    assert document["reason_code"] == "journal_not_found"
    assert "/somewhere/journal.jsonl" in str(document["reason"])


def test_many_unreadable_lines_are_counted_not_listed():
    answer = rederive([b"x\n" * 1000], "r")
    assert answer.reason_code == "journal_unreadable"
    assert answer.reason.endswith("18, 19 and 980 more")


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "x" * 65])
def test_a_run_id_that_no_journal_can_have_is_said_so(run_id):
    answer = rederive([PLAN], run_id)
    assert answer.reason_code == "journal_unreadable"
    assert "no journal can have this name" in answer.reason


def test_an_unknown_hash_profile_is_a_mismatch_that_names_it():
    answer = rederive([row("plan.graph.full", nodes=[], hash_profile="sha-3")], "r")
    assert (answer.reason_code, answer.step_index) == ("head_mismatch", None)
    assert "unknown hash_profile 'sha-3'" in answer.reason


def test_a_row_without_a_form_under_its_profile_is_named():
    plan: dict[str, JsonValue] = {"nodes": [], "hash_profile": "jcs-v2"}
    stored = payload_hash(plan, "plan.graph.full", Profile.JCS)
    lines = row("plan.graph.full", **plan, payload_hash=stored) + b'{"event": "n", "x": NaN}\n'
    answer = rederive([lines], "r")
    assert (answer.reason_code, answer.step_index) == ("head_mismatch", 1)
    assert "event #1 has no hash under jcs-v2" in answer.reason


def test_a_broken_rule_outranks_a_row_without_a_hash():
    lines = PLAN.replace(b"}", b', "hash_profile": "sha-3"}') + row("task_retried", task_id="a")
    answer = rederive([lines], "r")
    assert (answer.step_index, answer.rule) == (1, "outcome_for_unclaimed_task")


def test_integers_beyond_64_bits_stay_different_tasks():
    claims = row("task_claimed", task_id=2**64) + row("task_claimed", task_id=2**64 + 1)
    assert rederive([PLAN + claims], "r").reason_code == "head_mismatch"
    again = rederive([PLAN + claims + row("task_claimed", task_id=2**64)], "r")
    assert (again.step_index, again.rule) == (3, "task_already_claimed")


def test_a_loss_before_the_claim_has_no_part_in_the_explanation():
    lines = (
        PLAN
        + row("agent_reaped", agent_id="g1")
        + row("task_claimed", task_id="a", agent_id="g1")
        + row("task_claimed", task_id="a", agent_id="g2")
    )
    assert "was lost" not in rederive([lines], "r").reason


def test_lists_of_notes_end_and_the_count_goes_on():
    answer = rederive([PLAN + row("note") * 99], "r")
    assert answer.note_count == 400
    assert len(answer.notes) == 20
