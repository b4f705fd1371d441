import json

import pytest

from bernstein_formats.canonical import JsonValue, Profile
from bernstein_formats.errors import InvalidInput, LimitExceeded, RowMalformed
from bernstein_formats.event_journal import RESERVED_NAMES, ChainHead, next_row
from bernstein_formats.journal_diff import diff_journals
from bernstein_formats.journal_reader import LineBlocks, load_events, load_events_strictly
from bernstein_formats.journal_verify import MAX_LISTED, JournalSeal, verify_journal
from bernstein_formats.paths import check_run_id, review_diff_path, spine_path, task_run_id
from bernstein_formats.provider_state import ProviderState


def journal(*payloads: dict[str, JsonValue], profile=Profile.PY_JSON, event="e"):
    """Give the lines of a journal with one row for each payload."""
    head, lines = ChainHead(profile=profile), []
    for payload in payloads:
        line, head = next_row(head, event, payload, 1700000000.5, 0.25)
        lines.append(line + b"\n")
    return lines


def test_a_row_from_text_is_the_row_from_the_value():
    text = b'{"z":1e16,"a":[1.50,"\\u00e9"],"b":true,"n":null,"i":-7}'
    for profile in Profile:
        head = ChainHead(3, "ab" * 32, profile)
        from_text = next_row(head, "é", text, 1.0, 0.0)
        assert from_text == next_row(head, "é", json.loads(text), 1.0, 0.0)
        assert b'"z": 1e+16, "a": [1.5, "\\u00e9"], "b": true, "n": null, "i": -7}' in from_text[0]


@pytest.mark.parametrize(
    "hidden",
    [b'"b" : 2, "b": 3', b'"b"\t:2, "b": 3', b'"b": 2, "b": 3', b'"b":{"x":":"},"\\u0062":3'],
)
@pytest.mark.parametrize("text", ["", ":", '"b":', "a\\b", '\\":'])
def test_a_member_named_twice_is_found_wherever_colons_stand(hidden: bytes, text: str):
    payload: dict[str, JsonValue] = {"a": text, "b": 3}
    lines = journal(*[payload] * 4)
    lines[2] = lines[2].replace(b'"b": 3', hidden)
    found = verify_journal(lines)
    assert [(each.reason, each.index, each.member) for each in found.findings] == [
        ("duplicate_member", 2, "b")
    ]


def test_an_escaped_colon_hides_no_member_named_twice():
    payload: dict[str, JsonValue] = {"a": "1:2", "b": 3}
    lines = journal(*[payload] * 4)
    lines[2] = lines[2].replace(b'"1:2", "b": 3', b'"1\\u003a2", "b":2, "b": 3')
    assert [each.index for each in verify_journal(lines).findings] == [2]


def test_a_row_does_not_change_the_payload_it_is_given():
    payload: dict[str, JsonValue] = {"a": 1}
    next_row(ChainHead(profile=Profile.JCS), "e", payload, 1.0, 0.0)
    assert payload == {"a": 1}


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_payload_cannot_name_what_is_the_rows_own(name):
    with pytest.raises(InvalidInput) as caught:
        next_row(ChainHead(), "e", json.dumps({"a": 1, name: 2}).encode(), 1.0, 0.0)
    assert {"member": name} == caught.value.metadata


@pytest.mark.parametrize("payload", [b"[]", b"1", b"null", b'"a"', b"{", b"", b"\xff"])
def test_a_payload_that_is_no_object_is_refused(payload):
    with pytest.raises(InvalidInput):
        next_row(ChainHead(), "e", payload, 1.0, 0.0)


@pytest.mark.parametrize("payload", [b'{"a":NaN}', b'{"a":{"b":[-Infinity]}}', b'{"a":1e999}'])
@pytest.mark.parametrize("profile", Profile)
def test_numbers_that_are_no_json_are_refused(payload, profile):
    with pytest.raises(InvalidInput):
        next_row(ChainHead(profile=profile), "e", payload, 1.0, 0.0)


def test_a_huge_integer_is_refused_by_name():
    with pytest.raises(LimitExceeded):
        next_row(ChainHead(), "e", {"a": 10**4400}, 1.0, 0.0)


def test_half_a_surrogate_pair_in_an_event_type_is_refused_under_jcs():
    with pytest.raises(InvalidInput):
        next_row(ChainHead(profile=Profile.JCS), "\ud800", b"{}", 1.0, 0.0)


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "a\n", "a" * 65, "é", "\u0661", "a b"])
def test_what_is_no_run_id_is_refused(run_id):
    with pytest.raises(InvalidInput):
        check_run_id(run_id)
    with pytest.raises(InvalidInput):
        spine_path(run_id)


def test_paths_of_a_task():
    assert task_run_id("t/1") == "task-t-1"
    assert task_run_id("") == "task-unknown"
    assert review_diff_path("r", "t-1") == "runs/r/review/diffs/t-1.diff"
    with pytest.raises(InvalidInput):
        review_diff_path("r", "../t")


@pytest.mark.parametrize(
    ("data", "lines", "ended"),
    [
        (b"", [], True),
        (b"a\nb\r\nc\rd", [b"a", b"b", b"c", b"d"], False),
        (b"a\r", [b"a"], True),
        (b"\n\r\n\r", [b"", b"", b""], True),
        (b"a\x0b\x0c\x1c\xc2\x85\n", [b"a\x0b\x0c\x1c\xc2\x85"], True),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_end_where_text_mode_ends_them(data, lines, ended, size):
    blocks = LineBlocks(data[at : at + size] for at in range(0, len(data), size))
    assert lines == [line for block in blocks for line in block]
    assert ended == blocks.ends_with_newline


def test_strict_load_names_the_line():
    lines = journal({"a": 1}, {"a": 2})
    assert len(load_events_strictly(lines)) == 2
    with pytest.raises(RowMalformed) as caught:
        load_events_strictly([lines[0], b"\n", lines[1].replace(b'"index": 1', b'"index": true')])
    assert caught.value.metadata == {"line": "3"}


def test_a_missing_final_newline_is_known():
    (line,) = journal({"a": 1})
    assert load_events([line]).ends_with_newline
    assert not load_events([line[:-1]]).ends_with_newline
    findings = verify_journal([line[:-1]]).findings
    assert [finding.reason for finding in findings] == ["final_newline_missing"]


@pytest.mark.parametrize("tail", [b"", b" ", b"\n\xc2\xa0", b"rubbish"])
def test_the_newline_is_missed_only_after_a_row(tail):
    lines = journal({"a": 1})
    assert not verify_journal([*lines, tail]).findings


def test_the_physical_line_of_a_break_counts_blank_and_discarded_lines():
    lines = journal({"a": 1}, {"a": 2}, {"a": 3})
    damaged = [lines[0], b"\n", b"rubbish\n", lines[1], lines[2].replace(b'"a": 3', b'"a": 4')]
    verification = verify_journal(damaged)
    assert (verification.divergent_index, verification.divergent_line) == (2, 5)
    assert verification.discarded_line_indices == (2,)
    assert "step 2: event_hash mismatch" in verification.errors


def test_lists_are_bounded_and_counts_are_not():
    damage = [b"rubbish\n"] * (MAX_LISTED + 7)
    verification = verify_journal(damage)
    assert len(verification.discarded_line_indices) == MAX_LISTED
    assert verification.discarded_count == MAX_LISTED + 7
    assert verification.errors[0].endswith(" and 7 more")
    rows = [line.replace(b'"index": ', b'"index": -') for line in journal(*[{}] * (MAX_LISTED + 7))]
    verification = verify_journal(rows)
    assert verification.chain_consistent
    assert len(verification.findings) == MAX_LISTED
    assert verification.findings_count == MAX_LISTED + 6  # -0 is 0


@pytest.mark.parametrize("profile", Profile)
def test_every_row_is_watched_whatever_the_chain(profile):
    lines = journal({"a": 1}, {"a": 2**70}, {"a": 3}, {"a": 2**70}, profile=profile)
    lines[2] = lines[2].replace(b'"a": 3', b'"a": 5')
    seen = []
    verify_journal(lines, watch=lambda index, row: seen.append((index, row["a"])))
    assert seen == [(0, 1), (1, 2**70), (2, 5), (3, 2**70)]


def test_identity_needs_head_and_count():
    lines = journal({"a": 1}, {"a": 2})
    head = verify_journal(lines).head
    assert verify_journal(lines, JournalSeal(head, 2)).identity == "verified"
    assert verify_journal(lines, JournalSeal(head, 3)).identity == "mismatched"
    assert verify_journal(lines[:1], JournalSeal(head, 2)).identity == "mismatched"
    assert verify_journal(lines).identity == "unverifiable"


def row(**members):
    return json.dumps(members).encode() + b"\n"


@pytest.mark.parametrize(("a", "b"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ([1], [1.0])])
def test_diff_tells_types_apart(a, b):
    diff = diff_journals([row(response=a)], [row(response=b)])
    assert (diff.diverged, diff.index, diff.reason_code) == (True, 0, "response_mismatch")


def test_diff_takes_null_for_a_missing_member():
    assert not diff_journals([row(kind=None)], [row(other=1)]).diverged


def test_diff_passes_over_what_is_no_row():
    hostile = [b"[1]\n", b"\xff\n", b'{"a":' + b"9" * 5000 + b"}\n", b"[" * 99999 + b"\n"]
    assert not diff_journals([row(event="e"), *hostile], [row(event="e")]).diverged


def test_provider_state_speaks_up():
    address = "a9e4a8e5f9a0f7a7"
    state = ProviderState()
    state.feed(0, {"event": "provider_state_capture_failed", "reason": "gone"})
    state.feed(1, {"event": "provider_state_mutation", "step_index": None})
    state.feed(
        2,
        {
            "event": "provider_state_mutation",
            "mutation_kind": "compact_boundary",
            "before_digest": "b",
            "after_digest": "a",
            "step_index": float("inf"),
        },
    )
    state.feed(3, {"event": "provider_state_mutation", "step_index": 0, "content_address": address})
    state.feed(4, {"event": "task_claimed", "flagged": True})
    assert state.mutation_count == 3
    assert not state.ok
    assert state.errors == [
        "step 0: provider-state capture failed (gone); replay unverifiable (fail-closed)",
        "step 1: provider_state_mutation has malformed step_index None",
        "step 2: provider_state_mutation has malformed step_index inf",
        "step 3: provider_state_mutation content address mismatch",
    ]


def test_a_line_without_end_is_refused_in_a_verification_as_in_a_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bernstein_formats.journal_reader.LINE_BYTES_MAX", 100)
    for end in (b"\n", b"\r"):
        with pytest.raises(LimitExceeded, match="a line has more than 100 bytes"):
            verify_journal([b"x" * 60, end + b"x" * 60, b"x" * 60])
        assert verify_journal([(b"x" * 60 + end) * 2, b"x" * 60 + end]).discarded_count == 3
