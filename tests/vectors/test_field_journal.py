"""Journals that trouble in the field has left, and what we say about them."""

import json
from pathlib import Path

import pytest

from bernstein_formats.canonical import Profile, canonical_text, parse_json
from bernstein_formats.errors import InvalidInput
from bernstein_formats.event_journal import ChainHead, event_hash, next_row, payload_hash
from bernstein_formats.journal_diff import ONLY_ORDER, diff_journals
from bernstein_formats.journal_verify import verify_journal

DATA = Path(__file__).parent / "data" / "field"


def expected(case, file="expected.json"):
    return json.loads((DATA / case / file).read_bytes())


def verified(case, file):
    return verify_journal([(DATA / case / file).read_bytes()])


@pytest.mark.parametrize("file", ["nul_line.jsonl", "nul_glued.jsonl", "nul_tail.jsonl"])
def test_f07_a_block_of_nul_bytes_is_a_damaged_line(file):
    verification = verified("F07", file)
    wanted = expected("F07")[file]
    assert wanted["bad_physical_lines_0based"] == list(verification.discarded_line_indices)
    assert verification.chain_consistent
    assert wanted["coverage"] == verification.coverage
    assert not verification.intact


def test_f07_the_intact_journal_is_intact():
    verification = verified("F07", "intact.jsonl")
    assert verification.intact
    assert (expected("F07")["head"], 3) == (verification.head, verification.count)


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("original.jsonl", []),
        ("index_edited.jsonl", [(1, "index")]),
        ("payload_hash_edited.jsonl", [(1, "payload_hash")]),
        ("index_missing.jsonl", [(2, "index")]),
    ],
)
def test_f09_stored_copies_are_checked(file, found):
    verification = verified("F09", file)
    assert found == [(finding.index, finding.member) for finding in verification.findings]
    assert verification.intact == (not found)
    assert verification.chain_consistent
    assert expected("F09")["head_recomputed_from_content"] == verification.head


@pytest.mark.parametrize("case", expected("F10", "numbers.json")["cases"], ids=lambda c: c["name"])
def test_f10_a_number_has_one_form_and_one_hash_in_each_profile(case):
    for profile, name in (Profile.PY_JSON, "legacy"), (Profile.JCS, "jcs"):
        row = parse_json(b'{"event":"n","v":' + case["legacy_text"].encode() + b"}")
        assert isinstance(row, dict)
        if f"{name}_text" not in case:
            with pytest.raises(InvalidInput):
                payload_hash(row, "n", profile)
            continue
        assert case[f"{name}_text"].encode() == canonical_text(case["legacy_text"], profile)
        payload_hex = payload_hash(row, "n", profile)
        assert case[f"event_hash_{name}"] == event_hash("", "n", payload_hex, 0, profile)


def test_f11_half_an_emoji_is_kept_by_one_profile_and_refused_by_the_other():
    cases = expected("F11", "cases.json")
    payload = b'{"t": ' + cases["lone_high_in_json"].encode() + b"}"
    line, head = next_row(ChainHead(), "e", payload, 1.0, 0.0)
    assert cases["legacy_event_hash"] == head.head_hash
    after, _ = next_row(head, "n", b"{}", 1.0, 0.0)
    assert verify_journal([line + b"\n", after + b"\n"]).intact
    assert json.loads(cases["lone_high_in_json"]) == json.loads(line)["t"]
    with pytest.raises(InvalidInput):
        next_row(ChainHead(profile=Profile.JCS), "n", payload, 1.0, 0.0)


def test_f13_another_order_of_the_same_outcomes_is_named_as_such():
    files = [[(DATA / "F13" / file).read_bytes()] for file in ("run_a.jsonl", "run_b.jsonl")]
    diff = diff_journals(*files)
    assert expected("F13")["diff"]["first_divergent_index"] == diff.index
    assert diff.notes == (ONLY_ORDER,)
    for file, head in expected("F13")["heads"].items():
        assert head == verified("F13", file).head


def test_f13_a_changed_result_is_not_called_a_matter_of_order():
    a = (DATA / "F13" / "run_a.jsonl").read_bytes()
    b = (DATA / "F13" / "run_b.jsonl").read_bytes()
    changed = b.splitlines(keepends=True)
    changed[-1] = changed[-1].replace(b'"payload_hash": "', b'"payload_hash": "0')
    assert not diff_journals([a], changed).notes


def test_f23_a_half_written_row_with_another_glued_to_it_is_noticed():
    verification = verified("F23", "partial_then_success.jsonl")
    assert not verification.intact
    assert verification.discarded_count == 1


def test_f25_the_clock_is_not_part_of_the_chain():
    verification = verified("F25", "clock_jumps.jsonl")
    assert verification.intact
    assert expected("F25")["head"] == verification.head
