"""The chain of the audit log, and the window of it that a receipt copies."""

import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bernstein_formats.audit_log import (
    GENESIS,
    AuditFields,
    AuditWalk,
    next_audit_line,
    read_audit_row,
    segment_lines,
)
from bernstein_formats.audit_range import (
    AuditSelection,
    AuditWindow,
    given_macs,
    master_mac,
    named_run,
)
from bernstein_formats.errors import Broken, ChainBroken, InvalidInput, KeyUnusable, RowMalformed
from bernstein_formats.mac import Domain, derived_key, mac_keys, same_mac
from bernstein_formats.receipt_audit import audit_binding, audit_warnings
from bernstein_formats.run_receipt import AuditBinding

KEYS = mac_keys(b" 5f5f\n")
SECOND = 1_000_000_000


def log(count: int, **details) -> list[bytes]:
    lines, head = [], GENESIS
    for number in range(count):
        fields = AuditFields("run.step", "é", "task", f"T-{number}", {"n": number, **details})
        line = next_audit_line(fields, f"2026-03-01T10:00:0{number}.000000Z", head, KEYS)
        head = str(read_audit_row(line)["hmac"])
        lines.append(line + b"\n")
    return lines


def walked(lines: list[bytes], keys=KEYS) -> AuditWalk:
    walk = AuditWalk(keys)
    walk.begin_segment("2026-03-01.jsonl")
    for line in lines:
        walk.add(line)
    return walk


def changed(line: bytes, **members) -> bytes:
    row = {**json.loads(line), **members}
    return json.dumps(row, sort_keys=True).encode() + b"\n"


def test_keys_are_the_files_text_and_what_hkdf_makes_of_it():
    assert KEYS.master == b"5f5f"
    assert len({KEYS.master, KEYS.audit, KEYS.lineage}) == 3
    assert "5f5f" not in repr(KEYS)
    for empty in (b"", b" \n"):
        with pytest.raises(KeyUnusable, match="empty"):
            mac_keys(empty)


def test_hkdf_is_that_of_rfc_5869():
    for domain in Domain:
        info = domain.value.encode()
        expected = HKDF(SHA256(), 32, None, info).derive(KEYS.master)
        assert derived_key(KEYS.master, domain) == expected


def test_a_mac_of_another_type_or_alphabet_is_another_mac():
    assert same_mac("ab", "ab")
    assert not any(same_mac(stated, "ab") for stated in (None, 1, "aB", "é", "\ud800", ["ab"]))


def test_a_log_verifies_with_its_key_and_by_its_links_alone():
    lines = log(3)
    assert walked(lines).count == walked([*lines, b"\n"], None).count == 3
    with pytest.raises(ChainBroken, match="line 1: the event's hmac") as caught:
        walked(lines, mac_keys(b"other"))
    assert caught.value.metadata["segment"] == "2026-03-01.jsonl"
    assert caught.value.metadata["line"] == "1"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"\xff", "UTF-8"),
        (b"[" * 2000, "JSON|nested"),
        (b'{"n": %b}' % (b"9" * 5000), "digits"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (log(1)[0].strip().replace(b", ", b","), "canonical"),
        (log(1)[0].strip() + b"\r", "canonical"),
        (changed(log(1)[0], extra=1).strip(), "unknown 'extra'"),
        (changed(log(1)[0], details=[1]).strip(), "details"),
        (changed(log(1)[0], actor=7).strip(), "actor"),
        (changed(log(1)[0], scheme=3).strip(), "scheme"),
        (changed(log(1)[0], scheme=True).strip(), "scheme"),
        (changed(log(1)[0], scheme=None).strip(), "scheme"),
    ],
)
def test_a_line_that_is_no_event_is_refused_by_name(line, word):
    with pytest.raises(RowMalformed, match=word) as caught:
        walked([line + b"\n"])
    assert caught.value.metadata["line"] == "1"


def test_an_event_that_was_cut_out_planted_or_cut_short_is_found():
    lines = log(3)
    for broken in ([lines[1]], [lines[0], lines[2]], [lines[0], lines[0]]):
        with pytest.raises(ChainBroken, match="does not follow"):
            walked(broken)
    with pytest.raises(RowMalformed, match="cut short"):
        walked([lines[0], lines[1][:-1]])


def test_a_receipts_copies_do_not_pass_for_a_log_of_scheme_1():
    selection = AuditSelection(AuditWindow.parse("2026", "2027"), "r")
    for line in log(2):
        selection.add(read_audit_row(line[:-1]))
    block = json.loads(selection.built(master_mac(KEYS)).block)
    copies = [changed(json.dumps(copy).encode()) for copy in block["events"]]
    with pytest.raises(ChainBroken, match="scheme 1"):
        walked(copies)


def test_lines_end_at_a_line_feed_and_nowhere_else():
    data = b"a\x0bb\n\xc2\x85c\r\n\nlast"
    expected = [b"a\x0bb\n", b"\xc2\x85c\r\n", b"\n", b"last"]
    for size in (1, 2, 3, 100):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert list(segment_lines(pieces)) == expected


@pytest.mark.parametrize(("since", "until"), [("2027", "2026"), ("2026", "2026-01-01T00:00:00Z")])
def test_a_window_without_an_instant_is_refused(since, until):
    with pytest.raises(InvalidInput, match="no instant"):
        AuditWindow.parse(since, until)


def test_the_window_takes_its_first_instant_and_leaves_its_last():
    window = AuditWindow.parse("2026-03-01T10:00:01Z", "2026-03-01T12:00:02+02:00")
    selection = AuditSelection(window, "r")
    for line in log(3):
        selection.add(read_audit_row(line[:-1]))
    assert selection.event_count == selection.foreign_count == 1


def test_a_timestamp_that_is_no_instant_is_refused():
    row = {**json.loads(log(1)[0]), "timestamp": "yesterday"}
    with pytest.raises(Broken, match="timestamp"):
        AuditSelection(AuditWindow.parse("2026", "2027"), "r").add(row)


@pytest.mark.parametrize(
    ("row", "run"),
    [
        ({"details": {"run_id": "r"}, "resource_type": "run", "resource_id": "other"}, "r"),
        ({"details": {}, "resource_type": "run", "resource_id": "r"}, "r"),
        ({"details": {}, "resource_type": "task", "resource_id": "r"}, None),
        ({"details": {"run_id": 7}, "resource_type": "task", "resource_id": "r"}, None),
    ],
)
def test_an_event_names_a_run_by_its_details_or_its_resource(row, run):
    assert named_run(row) == run


def test_the_signers_macs_give_the_range_that_the_key_gives():
    selection = AuditSelection(AuditWindow.parse("2026", "2027"), "r")
    for line in log(3):
        selection.add(read_audit_row(line[:-1]))
    built = selection.built(master_mac(KEYS))
    assert selection.built(given_macs(built.macs)) == built
    for short in (b"", built.macs[:-1], built.macs[:32]):
        with pytest.raises(InvalidInput, match="fewer MACs"):
            selection.built(given_macs(short))


def block_of(count: int) -> dict[str, Any]:
    selection = AuditSelection(AuditWindow.parse("2026", "2027"), "r")
    for line in log(count):
        selection.add(read_audit_row(line[:-1]))
    block: dict[str, Any] = json.loads(selection.built(master_mac(KEYS)).block)
    return block


def redigested(block: dict[str, Any]) -> dict[str, Any]:
    """What a careless holder of the signing key could have signed."""
    lines = [json.dumps(each, sort_keys=True, separators=(",", ":")) for each in block["events"]]
    digest = hashlib.sha256(b"".join(line.encode() + b"\n" for line in lines)).hexdigest()
    return {**block, "head_sha256": digest, "event_count": len(lines)}


def test_a_range_is_followed_by_its_links_without_the_key():
    block = block_of(3)
    assert audit_binding(block, "1.1.0") == AuditBinding(
        block["head_sha256"], 3, block["events"][2]["hmac"], "2026", "2027"
    )
    swapped = {**block, "events": [block["events"][number] for number in (1, 0, 2)]}
    for events in (swapped["events"], block["events"][1:], [7], [{"hmac": 1}]):
        with pytest.raises(ChainBroken, match=r"follow|no event"):
            audit_binding(redigested({**block, "events": events}), "1.1.0")
    with pytest.raises(ChainBroken, match="head_hmac"):
        audit_binding(redigested({**block, "events": block["events"][:2]}), "1.1.0")


def test_events_outside_of_the_window_are_a_warning():
    block = block_of(3)
    assert list(audit_warnings(block)) == []
    moved = {**block, "since": "2026-03-01T10:00:01Z"}
    assert "1 audit events lie outside" in next(audit_warnings(moved))
    assert "no instant" in next(audit_warnings({**block, "until": "soon"}))
