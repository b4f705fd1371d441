"""Building: which refusal is told, and that a stream of lines is enough."""

import json

import pytest

from bernstein_formats.canonical import Profile
from bernstein_formats.errors import (
    BernsteinError,
    ChainBroken,
    InvalidInput,
    NotFound,
    RowMalformed,
)
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.run_receipt import Endpoint, ReceiptSubject
from bernstein_formats.spine import entry_hash


def journal(*payloads, event: str = "step", profile: Profile = Profile.PY_JSON) -> list[bytes]:
    head, lines = ChainHead(profile=profile), []
    for payload in payloads:
        line, head = next_row(head, event, payload, 1.5, 0.5)
        lines.append(line)
    return lines


def spine_row(**changes) -> bytes:
    made = {
        "actor": "a",
        "artifact_path": "p",
        "content_hash": "c",
        "model": "",
        "prev_hash": "",
        "step_id": "s",
        "timestamp": 1,
        "v": 2,
        **changes,
    }
    return json.dumps({"hmac": "x", "entry_hash": entry_hash(made), **made}).encode()


def subject_of(lines, spine=(), **options) -> ReceiptSubject:
    builder = ReceiptBuilder("r", **options)
    for _ in builder.event_chunks(lines):
        pass
    for line in spine:
        builder.add_spine_line(line)
    return builder.subject()


GOOD = journal({"n": 0}, {"n": 1}, {"n": 2})
UNPARSABLE = b'{"index": 1'
SHAPELESS = GOOD[0].replace(b'"index": 0, ', b"")
UNCHAINED = GOOD[1].replace(b'"n": 1', b'"n": 7')


def test_lines_may_come_in_any_number_of_calls():
    builder = ReceiptBuilder("r", event_count=3)
    chunks = [chunk for line in GOOD for chunk in builder.event_chunks([line, b" \n"])]
    assert json.loads(b"[" + b"".join(chunks) + b"]")[2]["n"] == 2
    assert builder.subject() == subject_of(GOOD)


@pytest.mark.parametrize(
    ("lines", "line", "kind"),
    [
        ([SHAPELESS, UNPARSABLE], "2", RowMalformed),
        ([GOOD[0], UNCHAINED, b"", SHAPELESS], "4", RowMalformed),
        ([GOOD[0], UNCHAINED, SHAPELESS, UNPARSABLE], "4", RowMalformed),
        ([GOOD[0], UNCHAINED, GOOD[1]], "2", ChainBroken),
        ([b"\x85\xff", SHAPELESS], "1", RowMalformed),
        ([GOOD[0], b"[1]", UNPARSABLE], "2", RowMalformed),
    ],
)
def test_unreadable_beats_misshapen_beats_unchained(lines, line, kind):
    with pytest.raises(kind) as caught:
        subject_of(lines)
    assert caught.value.metadata["line"] == line
    assert caught.value.metadata["substrate"] == "journal"


def test_the_journals_refusal_comes_before_the_spines():
    with pytest.raises(ChainBroken, match="journal"):
        subject_of([GOOD[0], UNCHAINED], [b"{"])


@pytest.mark.parametrize(
    "line",
    [
        GOOD[0].replace(b'"n": 0', b'"n": NaN'),
        GOOD[0].replace(b'"n": 0', b'"n": 0, "n": 0'),
        GOOD[0].replace(b'"n": 0', b'"n": [{"a": 1, "a": 1}]'),
        GOOD[0].replace(b'"n": 0', b'"n": ' + b"9" * 5000),
        GOOD[0].replace(b'"n": 0', b'"n": ' + b"[" * 5000 + b"]" * 5000),
        GOOD[0].replace(b'"n": 0', b'"n": "\xff"'),
        GOOD[0] + GOOD[0],
        b"\xef\xbb\xbf" + GOOD[0],
    ],
    ids=["nan", "twice", "twice-within", "digits", "depth", "utf-8", "two", "bom"],
)
def test_a_line_that_readers_differ_on_is_refused_by_its_number(line):
    with pytest.raises(RowMalformed) as caught:
        subject_of([b"", line])
    assert caught.value.metadata["line"] == "2"


def test_clocks_may_be_anything():
    wild = GOOD[0].replace(b'"ts": 1.5', b'"ts": [NaN]')
    assert subject_of([wild]) == subject_of(GOOD[:1])


@pytest.mark.parametrize("member", ["index", "payload_hash"])
def test_a_stored_value_that_is_not_the_rows_own_is_refused(member):
    row = json.loads(GOOD[1])
    row[member] = 7 if member == "index" else "0" * 64
    with pytest.raises(ChainBroken) as caught:
        subject_of([GOOD[0], json.dumps(row).encode()])
    assert caught.value.metadata["member"] == member
    assert caught.value.metadata["step"] == "1"


def test_no_rows_are_nothing_to_sign():
    with pytest.raises(NotFound, match="nothing to sign"):
        subject_of([b"", b"  \r\n"])


def test_another_number_of_rows_than_announced_is_refused():
    with pytest.raises(InvalidInput, match="2 rows were announced, 3 came"):
        subject_of(GOOD, event_count=2)


@pytest.mark.parametrize("run_id", ["", ".", "..", "..a", "...", "a/b", "a\n", "é", "x" * 65])
def test_a_run_id_that_cannot_name_both_folders_is_refused(run_id):
    with pytest.raises(InvalidInput) as caught:
        ReceiptBuilder(run_id)
    assert caught.value.metadata["run_id"] == run_id


def seal(head: str, prev: str = "") -> bytes:
    return spine_row(step_id=f"replay-journal-head:{head}", prev_hash=prev)


def test_a_journal_cut_after_sealing_is_refused():
    whole = subject_of(GOOD).journal_head
    assert subject_of(GOOD, [seal(whole)]).spine_entry_count == 1
    with pytest.raises(ChainBroken) as caught:
        subject_of(GOOD[:2], [seal(whole)])
    assert caught.value.metadata["check"] == "seal"


def test_the_newest_seal_counts():
    old = seal(subject_of(GOOD[:2]).journal_head)
    new = seal(subject_of(GOOD).journal_head, prev=json.loads(old)["entry_hash"])
    assert subject_of(GOOD, [old, new]).spine_entry_count == 2
    with pytest.raises(ChainBroken):
        subject_of(GOOD[:2], [old, new])


@pytest.mark.parametrize(
    ("spine", "line", "kind"),
    [
        ([spine_row().replace(b'"actor"', b'"actr"'), b"", b"{"], "3", RowMalformed),
        (
            [spine_row(prev_hash="x"), spine_row().replace(b'"v": 2', b'"v": "2"')],
            "2",
            RowMalformed,
        ),
        ([spine_row(prev_hash="x"), spine_row()], "1", ChainBroken),
        ([spine_row().replace(b'"v": 2', b'"v": 2, "v": 2')], "1", RowMalformed),
    ],
)
def test_a_spine_is_refused_in_the_same_order(spine, line, kind):
    with pytest.raises(kind) as caught:
        subject_of(GOOD, spine)
    assert caught.value.metadata["line"] == line
    assert caught.value.metadata["substrate"] == "spine"


def test_half_a_character_under_jcs_breaks_the_chain_by_name():
    line = journal({"n": "x"}, profile=Profile.JCS)[0].replace(b'"x"', b'"\\ud800"')
    with pytest.raises(ChainBroken, match="surrogate"):
        subject_of([line])


def test_endpoints_are_listed_once_and_in_order():
    b = {"endpoint_adapter_name": "b", "endpoint_model": None}
    a = {"endpoint_adapter_name": "a", "endpoint_model": "m", "endpoint_base_url": "u"}
    lines = journal(b, a, b, {"endpoint_adapter_name": ""}, event="agent_spawned")
    assert subject_of(lines).endpoints == (Endpoint("a", "m", "u", ""), Endpoint("b", "", "", ""))


def test_a_malformed_extension_set_does_not_clear_an_earlier_one():
    lines = journal({"extensions": []}, {"extensions": [1]}, {}, event="loaded_extension_set")
    empty = "sha256:3d23c872cd6ac2d6f89cc6784d1903268aef48781a134277ada3def46823c800"
    assert subject_of(lines).extension_set_digest == empty


def test_every_refusal_says_which_run():
    for lines in ([], [UNPARSABLE], [SHAPELESS], [UNCHAINED]):
        with pytest.raises(BernsteinError, match="run r: ") as caught:
            subject_of(lines)
        assert caught.value.metadata["run_id"] == "r"
