import hashlib
import hmac
import json

import pytest

from bernstein_formats.errors import ChainBroken, InvalidInput, RowMalformed
from bernstein_formats.mac import mac_keys
from bernstein_formats.spine import (
    SpineFields,
    SpineWalk,
    embedded_entry,
    entry_hash,
    next_spine_row,
    row_mac,
    seal_fields,
    sealed_journal_head,
    spine_row_line,
)
from bernstein_formats.spine_verify import SpineStatus, SpineVerdict, verify_spine


def entry(prev_hash: str = "", **changes):
    made = {
        "actor": "agent-é",
        "artifact_path": "src/p.py",
        "content_hash": "sha256:00",
        "model": "m",
        "prev_hash": prev_hash,
        "step_id": "s-1",
        "timestamp": 5,
        "v": 2,
        **changes,
    }
    return {**made, "entry_hash": entry_hash(made)}


def test_the_scheme_enters_the_hash_through_its_tag_alone():
    hashed = (
        '{"actor":"agent-é","artifact_path":"src/p.py","content_hash":"sha256:00","model":"m",'
        '"prev_hash":"","step_id":"s-1","timestamp":5}'
    ).encode()
    tagged = b"bernstein:lineage:v2" + hashed
    assert entry()["entry_hash"] == "sha256:" + hashlib.sha256(tagged).hexdigest()
    assert entry(v=1)["entry_hash"] == "sha256:" + hashlib.sha256(hashed).hexdigest()


def test_trace_members_are_hashed_where_they_are():
    assert entry(baggage="b")["entry_hash"] != entry()["entry_hash"]


def test_the_mac_is_over_the_row_without_it():
    row = {**entry(), "hmac": "x"}
    text = json.dumps(entry(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    keys = mac_keys(b"key")
    assert (
        row_mac({**row, "v": 1}, keys)
        == hmac.new(b"key", text.replace('"v":2', '"v":1').encode(), hashlib.sha256).hexdigest()
    )
    expected = hmac.new(keys.lineage, text.encode(), hashlib.sha256).hexdigest()
    assert row_mac(row, keys) == expected


def test_a_walk_follows_links_and_keeps_the_head():
    walk = SpineWalk()
    first = entry()
    walk.add(first)
    walk.add(entry(first["entry_hash"], v=1))
    assert walk.count == 2
    assert walk.head == entry(first["entry_hash"], v=1)["entry_hash"]


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ({**entry(), "prev_hash": "sha256:11"}, "link"),
        ({**entry(), "v": 3}, "version"),
        ({**entry(), "v": 1}, "hash"),
        ({**entry(), "actor": "other"}, "hash"),
        ({**entry(), "timestamp": "5"}, "member"),
        ({**entry(), "timestamp": 5.0}, "member"),
        ({**entry(), "v": True}, "member"),
        ({**entry(), "baggage": None}, "member"),
        ({name: value for name, value in entry().items() if name != "v"}, "member"),
    ],
)
def test_an_entry_that_is_not_itself_breaks_the_walk(broken, check):
    with pytest.raises(ChainBroken) as caught:
        SpineWalk().add(broken)
    assert caught.value.metadata == {"substrate": "spine", "step": "0", "check": check}


def test_a_receipt_carries_a_row_without_its_mac_and_strangers():
    row = {**entry(), "hmac": "x", "other": 1, "baggage": None}
    assert embedded_entry(row) == entry()


def test_a_row_without_its_members_names_them_sorted():
    with pytest.raises(RowMalformed) as caught:
        embedded_entry({"actor": "a", "entry_hash": "", "hmac": "", "prev_hash": ""})
    missing = "artifact_path,content_hash,model,step_id,timestamp,v"
    assert caught.value.metadata["member"] == missing


def test_a_seal_names_the_journal_head():
    assert sealed_journal_head(entry(step_id="replay-journal-head:abc")) == "abc"
    assert sealed_journal_head(entry()) is None


KEYS = mac_keys(b"key")


def rows(count: int) -> list[bytes]:
    lines, head = [], ""
    for number in range(count):
        fields = SpineFields(f"é{number}", "sha256:0", "a", "s", "m", number)
        row = next_spine_row(fields, head, KEYS)
        head = str(row["entry_hash"])
        lines.append(spine_row_line(row) + b"\n")
    return lines


def test_a_spine_verifies_with_its_key_and_tells_the_four_states_apart():
    seal = seal_fields("r", "ab", "cd", 5)
    sealed = spine_row_line(next_spine_row(seal, "", KEYS))
    assert verify_spine([], KEYS).status == "no_entries"
    assert verify_spine([b"\n"], KEYS).status == "no_entries"
    assert verify_spine(rows(2), KEYS).status == "ok"
    assert verify_spine([sealed], KEYS) == SpineVerdict(
        SpineStatus.SEAL_ONLY, 1, json.loads(sealed)["entry_hash"], "ab", (), macs_checked=True
    )
    assert verify_spine(rows(2), mac_keys(b"other")).status == "tampered"
    assert verify_spine(rows(2), None).status == "ok"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ([b"garbage\n"], "line 1"),
        ([b"\xff\n"], "UTF-8"),
        ([b"[" * 3000 + b"\n"], "line 1"),
        ([b'{"n":' + b"9" * 5000 + b"}\n"], "digits"),
        ([b'{"v":2,"v":2}\n'], "twice"),
        ([b'{"v":null,"hmac":1}\n'], "lacks"),
        (rows(3)[1:], "does not follow"),
        ([rows(1)[0].replace(b'"actor":"a"', b'"actor":"b"')], "does not hash"),
        ([rows(1)[0].replace(b'"hmac":"', b'"hmac":"0')], "another hmac"),
        ([rows(1)[0].replace(b'"v":2', b'"v":2,"x":1')], "unknown member"),
        ([rows(1)[0].replace(b'"timestamp":0', b'"timestamp":1e999')], "line 1"),
        ([rows(1)[0].replace(b'"m"', b'"\\ud800"')], "line 1"),
    ],
)
def test_whatever_is_wrong_with_a_spine_is_told_with_its_line(data, word):
    found = verify_spine(data, KEYS)
    assert found.status == "tampered"
    assert word in found.errors[0]


def test_half_a_character_makes_no_row():
    with pytest.raises(InvalidInput, match="surrogate"):
        next_spine_row(SpineFields("\ud800", "sha256:0", "a", "s", "", 0), "", KEYS)
