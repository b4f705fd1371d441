"""Runs the event journal's vectors: the peer's answer, or ours where we are stricter."""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.canonical import Profile, canonical_bytes, plain_value
from bernstein_formats.errors import InvalidInput, LimitExceeded, RowMalformed
from bernstein_formats.event_journal import ChainHead, event_hash, next_row, payload_hash
from bernstein_formats.journal_diff import diff_journals
from bernstein_formats.journal_reader import load_events, load_events_strictly
from bernstein_formats.journal_verify import JournalSeal, rebuild_state, verify_journal
from bernstein_formats.paths import journal_path

DATA = Path(__file__).parent / "data" / "event-journal"
CASES = {folder.name: json.loads((folder / "case.json").read_bytes()) for folder in DATA.glob("*/")}

RUN_KINDS = {"append", "journal", "hash", "jcs", "pair", "run_ids"}
RUN_SECTIONS = {"load", "strict_load", "verify", "rebuild_state"}
# In test_run_folders, test_commands, test_journal_repair and test_thread.
KINDS_ELSEWHERE = {"retention", "retention_layout", "read_paths", "run_id_layouts", "cli"}
SECTIONS_ELSEWHERE = {"repair", "resume_and_append", "thread_verify", "thread_frames"}

# Where ours is stricter: what we find, as (reason, position, member), beside the peer's verdict.
FINDINGS = {
    "082-no-final-newline": [("final_newline_missing", 3, None)],
    "102-tamper-payload-hash": [("payload_hash_wrong", 3, "payload_hash")],
    "103-tamper-payload-hash-missing": [("payload_hash_wrong", 3, "payload_hash")],
    "104-tamper-index-gap": [("index_wrong", 3, "index")],
    "105-tamper-index-dup": [("index_wrong", 3, "index")],
    "106-tamper-index-missing": [("index_wrong", 3, "index")],
    "107-tamper-index-text": [("index_wrong", 3, "index")],
    "108-tamper-index-null": [("index_wrong", 3, "index")],
    "109-tamper-index-float": [("index_wrong", 3, "index")],
    "122-dup-json-key-hidden": [("duplicate_member", 3, "n")],
    "124-dup-event-key": [("duplicate_member", 3, "event")],
    "125-genesis-prev-missing": [("prev_hash_missing", 0, "prev_hash")],
    "128-event-type-confusion": [
        ("event_not_text", 0, "event"),
        ("event_not_text", 1, "event"),
        ("event_not_text", 2, "event"),
    ],
    "137-hostile-index-infinity": [("index_wrong", 3, "index")],
}
# Where the peer crashes: what we say instead (discarded lines, first bad row, rows accepted).
CRASHES = {
    "133-hostile-nan-jcs": ([], 1, 3),
    "134-hostile-surrogate-jcs": ([], 1, 3),
    "135-hostile-bigint": ([1], 1, 4),
    "136-hostile-nesting": ([5], None, 5),
}
# What the peer writes though it does not verify or is no JSON, and we refuse.
REFUSED_APPENDS = {
    "015-append-nan",
    "026-append-reserved-harmless",
    "027-append-reserved-event-hash",
    "028-append-reserved-prev-hash",
    "029-append-hash-profile-key",
    "030-append-hash-profile-unknown",
}
# What the peer hashes by another order of members, or cannot; names are text here.
NAMED_AS_TEXT = {"022-append-int-keys", "024-append-mixed-keys"}


def cases(kind):
    return sorted(name for name, case in CASES.items() if case["kind"] == kind)


def read(name, file):
    return json.loads((DATA / name / file).read_bytes())


def journal(name, file="journal.jsonl"):
    path = DATA / name / file
    return [path.read_bytes()] if path.exists() else []


def untagged(value):
    """Build the program value that a tagged one stands for."""
    if isinstance(value, list):
        return [untagged(each) for each in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    makers: dict[str, Callable[[Any], object]] = {
        "$float": float,
        "$tuple": lambda items: tuple(untagged(items)),
        "$datetime": datetime.fromisoformat,
        "$decimal": Decimal,
        "$bytes": bytes.fromhex,
        "$pairs": lambda pairs: {name: untagged(each) for name, each in pairs},
        "$pow10": lambda power: 10**power,
        "$nest": nested,
    }
    if len(value) == 1 and tag in makers:
        return makers[tag](value[tag])
    return {name: untagged(each) for name, each in value.items()}


def nested(levels):
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def append_all(name):
    """Append a case's events; give the lines and, for each event, the head after it or None."""
    given = read(name, "events.json")
    head = ChainHead(profile=Profile(given["hash_profile"]))
    lines: list[bytes] = []
    heads: list[ChainHead | None] = []
    for event in given["events"]:
        elapsed_s = round(event["now"] - given["start_ts"], 3)
        try:
            payload = plain_value(untagged(event["payload"]), head.profile)
            assert isinstance(payload, dict)
            line, head = next_row(head, event["event"], payload, event["now"], elapsed_s)
        except InvalidInput:
            heads.append(None)
        else:
            lines.append(line + b"\n")
            heads.append(head)
    return lines, heads


def test_every_case_is_run_here_or_elsewhere():
    assert len(CASES) == 157
    assert {case["kind"] for case in CASES.values()} == RUN_KINDS | KINDS_ELSEWHERE
    assert not RUN_KINDS & KINDS_ELSEWHERE


def test_every_section_is_run_here_or_elsewhere():
    sections = {section for name in cases("journal") for section in read(name, "expected.json")}
    assert sections == RUN_SECTIONS | SECTIONS_ELSEWHERE
    assert not RUN_SECTIONS & SECTIONS_ELSEWHERE


@pytest.mark.parametrize("name", sorted(set(cases("append")) - REFUSED_APPENDS - NAMED_AS_TEXT))
def test_appended_rows_are_the_peers_bytes(name):
    lines, heads = append_all(name)
    assert (DATA / name / "expected.jsonl").read_bytes() == b"".join(lines)
    for expected, head in zip(read(name, "expected.json")["results"], heads, strict=True):
        if head is None:
            assert "raises" in expected
        else:
            assert expected == {"index": head.index - 1, "head": head.head_hash}


@pytest.mark.parametrize("name", sorted(REFUSED_APPENDS | NAMED_AS_TEXT))
def test_an_append_that_would_break_the_chain_is_refused_or_mended(name):
    lines, heads = append_all(name)
    verification = verify_journal(lines)
    assert verification.intact
    assert verification.count == len(lines)
    assert (None in heads) == (name in REFUSED_APPENDS)


@pytest.mark.parametrize("name", cases("journal"))
def test_load_is_the_peers(name):
    expected = read(name, "expected.json")["load"]
    load = load_events(journal(name))
    if "raises" in expected:
        assert CRASHES[name][0] == list(load.discarded_line_indices)
        return
    assert expected["discarded_line_indices"] == list(load.discarded_line_indices)
    assert expected["count"] == len(load.events)
    if "events" in expected:
        assert expected["events"] == [str(row.get("event", "")) for row in load.events]


@pytest.mark.parametrize("name", cases("journal"))
def test_strict_load_is_the_peers(name):
    expected = read(name, "expected.json")["strict_load"]
    if "raises" in expected:
        with pytest.raises(RowMalformed):
            load_events_strictly(journal(name))
    else:
        assert expected["count"] == len(load_events_strictly(journal(name)))


def verified(name, **options):
    case = CASES[name]
    seal = JournalSeal(**case["seal"]) if case.get("seal") else None
    return verify_journal(journal(name), seal, missing=case["missing"], **options)


@pytest.mark.parametrize("name", sorted(set(cases("journal")) - set(CRASHES)))
def test_verify_gives_the_peers_verdict_and_our_findings(name):
    expected = read(name, "expected.json")["verify"]
    verification = verified(name)
    actual = asdict(verification)
    actual["discarded_line_indices"] = list(actual["discarded_line_indices"])
    actual["errors"] = list(actual["errors"])
    assert expected == {member: actual[member] for member in expected}
    found = [(each.reason.value, each.index, each.member) for each in verification.findings]
    assert FINDINGS.get(name, []) == found
    assert not (found and verification.intact)


@pytest.mark.parametrize("name", sorted(CRASHES))
def test_what_crashes_the_peers_verifier_gets_a_verdict(name):
    assert "raises" in read(name, "expected.json")["verify"]
    discarded, divergent_index, count = CRASHES[name]
    verification = verified(name)
    assert not verification.intact
    assert discarded == list(verification.discarded_line_indices)
    assert divergent_index == verification.divergent_index
    assert count == verification.count


@pytest.mark.parametrize("name", cases("journal"))
def test_rebuilt_state_is_the_peers(name):
    expected = read(name, "expected.json")["rebuild_state"]
    if "raises" in expected:
        if CRASHES[name][0]:
            assert rebuild_state(journal(name), 10).step_count == CRASHES[name][2]
        else:
            with pytest.raises(RowMalformed):
                rebuild_state(journal(name), 10)
        return
    for steps, state in expected.items():
        actual = asdict(rebuild_state(journal(name), int(steps)))
        actual["events"] = list(actual["events"])
        assert state == {member: actual[member] for member in state}


def test_hashes_are_the_peers():
    (name,) = cases("hash")
    for given, expected in zip(read(name, "inputs.json"), read(name, "expected.json"), strict=True):
        profile = Profile(given["profile"])
        payload_hex = payload_hash(given["payload"], given["event"], profile)
        assert expected["payload_hash"] == payload_hex
        assert expected["event_hash"] == event_hash(
            given["prev_hash"], given["event"], payload_hex, given["index"], profile
        )


def test_jcs_values_are_the_peers():
    (name,) = cases("jcs")
    for tagged, expected in zip(
        read(name, "inputs.json"), read(name, "expected.json"), strict=True
    ):
        value = untagged(tagged)
        if "raises" in expected:
            with pytest.raises(InvalidInput):
                canonical_bytes(plain_value(value, Profile.JCS), Profile.JCS)
        else:
            actual = canonical_bytes(plain_value(value, Profile.JCS), Profile.JCS)
            assert bytes.fromhex(expected["utf8_hex"]) == actual


@pytest.mark.parametrize("name", cases("pair"))
def test_pairs_differ_where_the_peer_says(name):
    expected = read(name, "expected.json")
    actual = asdict(diff_journals(journal(name, "a.jsonl"), journal(name, "b.jsonl")))
    assert expected == {member: actual[member] for member in expected}


def test_run_ids_are_taken_and_refused_as_by_the_peer():
    (name,) = cases("run_ids")
    for run_id, expected in zip(
        read(name, "inputs.json"), read(name, "expected.json"), strict=True
    ):
        if "raises" in expected:
            with pytest.raises(InvalidInput):
                journal_path(run_id)
        else:
            assert expected["path"] == journal_path(run_id)


def test_limits_are_told_apart_from_other_bad_input():
    lines = (DATA / "135-hostile-bigint" / "journal.jsonl").read_bytes().splitlines()
    with pytest.raises(LimitExceeded):
        canonical_bytes(10**4400, Profile.PY_JSON)
    assert len(lines[1]) > 4300
