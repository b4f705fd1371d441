"""Re-derivation against the golden answers: each case by its verdict, or by what is recommended."""

import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.rederivation import Rederivation, journal_not_found, rederive

FOLDER = Path(__file__).parent / "data" / "re-derivation"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())

# What is asked of the command, not of the library: tested with the command.
COMMAND_CASES = (
    "095-cli-two-ids",
    "096-cli-verify-wins",
    "097-cli-beats-from-step",
    "098-cli-latest",
    "099-cli-latest-none",
    "100-cli-traversal-id",
)
LIBRARY_CASES = [case for case in CASES if case not in COMMAND_CASES]


def expected_of(case: str):
    return json.loads((FOLDER / case / "expected.json").read_text())


COPIED_CASES = [case for case in LIBRARY_CASES if "recommended" not in expected_of(case)]


def answer(case: str) -> tuple[Rederivation, Any]:
    expected = expected_of(case)
    run_id = expected["run_id"]
    journal = FOLDER / case / "sdd" / "runs" / run_id / "journal.jsonl"
    if not journal.exists():
        return journal_not_found(run_id, str(journal)), expected
    return rederive([journal.read_bytes()], run_id), expected


def test_every_case_is_run_here_or_with_the_command():
    index = [each["case"] for each in json.loads((FOLDER / "index.json").read_text())]
    assert index == sorted([*LIBRARY_CASES, *COMMAND_CASES])
    assert len(index) == 110


@pytest.mark.parametrize("case", LIBRARY_CASES)
def test_the_verdict_is_the_expected_one(case):
    answered, expected = answer(case)
    wanted = expected.get("recommended") or expected
    assert answered.ok == (wanted["verdict"] == "ok")
    assert answered.reason_code == (wanted.get("reason_code") or "")
    assert answered.rule == (wanted.get("rule") or "")
    assert answered.step_index == wanted.get("step_index")


def test_the_peers_answer_is_not_copied_in_these_cases_only():
    assert [case for case in LIBRARY_CASES if case not in COPIED_CASES] == [
        "080-head-jcs-non-ascii",
        "101-crash-self-field",
        "102-crash-huge-integer",
        "103-crash-deep-nesting",
        "104-crash-markup-id",
    ]


@pytest.mark.parametrize("case", COPIED_CASES)
def test_the_document_is_the_peers_where_its_answer_stands(case):
    answered, expected = answer(case)
    document = answered.as_json()
    wanted = expected["json"]
    for member in set(wanted) - {"reason"}:
        assert document[member] == wanted[member], member
    assert list(document) == [
        "ok",
        "run_id",
        "recorded_head",
        "derived_head",
        "step_count",
        "step_index",
        "reason",
        "reason_code",
        "rule",
    ]


@pytest.mark.parametrize("case", [case for case in LIBRARY_CASES if expected_of(case)["rule"]])
def test_a_broken_rule_is_told_in_the_peers_words(case):
    answered, expected = answer(case)
    assert answered.reason.startswith(expected["json"]["reason"])


def test_a_jcs_journal_is_chained_under_its_own_profile():
    answered, _ = answer("080-head-jcs-non-ascii")
    assert answered.ok
    assert answered.derived_head == answered.recorded_head
    assert answered.notes == ()


def test_edited_chain_members_in_the_middle_are_noted_and_change_no_verdict():
    answered, _ = answer("029-chain-fields-edited-mid-file")
    assert answered.ok
    assert answered.note_count > 0
    assert len(answered.notes) == answered.note_count
