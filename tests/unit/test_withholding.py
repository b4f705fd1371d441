"""Withheld copies: what stays, what still verifies, and what cannot be withheld."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.errors import ChainBroken, InvalidInput, ReceiptMalformed
from bernstein_formats.event_journal import link_bytes
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_head, receipt_tail
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import ReceiptSignature
from bernstein_formats.withholding import parse_steps, withheld_copy

FOLDER = Path(__file__).parents[1] / "vectors" / "data" / "receipts"
GIVEN = FOLDER / "b02-journal-and-spine" / "expected"
RECEIPT = (GIVEN / "run-receipt.json").read_bytes()
PIN = (GIVEN / "public-key.pem").read_bytes()
COSE = (GIVEN / "run-receipt.cose").read_bytes()
COUNT = 4


def test_a_copy_verifies_under_the_same_signature_and_says_what_is_withheld():
    copy = withheld_copy(RECEIPT, {1, 2})
    verdict = verify_receipt(copy, PIN, COSE)
    assert (verdict.ok, verdict.tier, verdict.cose_verified) == (True, "provenance", True)
    assert (verdict.journal_events, verdict.withheld_events) == (COUNT, 2)
    assert verdict.layout_findings == ()
    assert json.loads(copy)["signing"] == json.loads(RECEIPT)["signing"]


def test_a_withheld_row_keeps_its_envelope_and_nothing_else():
    before = json.loads(RECEIPT)["journal"]["events"][1]
    after = json.loads(withheld_copy(RECEIPT, {1}))["journal"]["events"][1]
    envelope = {"event", "event_hash", "index", "payload_hash", "prev_hash"}
    assert set(before) > envelope
    assert after == {name: before[name] for name in envelope} | {"payload_withheld": True}


def test_more_can_be_withheld_of_a_copy_and_nothing_changes_the_second_time():
    assert withheld_copy(withheld_copy(RECEIPT, {1}), {2}) == withheld_copy(RECEIPT, {1, 2})
    assert withheld_copy(RECEIPT, set()) == RECEIPT


@pytest.mark.parametrize("member", ["event", "event_hash", "index", "payload_hash", "prev_hash"])
def test_what_a_withheld_row_keeps_cannot_be_changed(member):
    copy = json.loads(withheld_copy(RECEIPT, {1}))
    row = copy["journal"]["events"][1]
    row[member] = row[member] + (1 if member == "index" else "0")
    verdict = verify_receipt(canonical_bytes(copy, Profile.PY_JSON))
    assert verdict.exit_code() == 2


@pytest.mark.parametrize("mark", [False, 1, "true", None])
def test_a_row_whose_mark_is_not_true_is_no_withheld_row(mark):
    copy = json.loads(withheld_copy(RECEIPT, {1}))
    copy["journal"]["events"][1]["payload_withheld"] = mark
    assert verify_receipt(canonical_bytes(copy, Profile.PY_JSON)).divergent_step == 1


def test_a_row_with_a_payload_of_its_own_beside_the_mark_is_no_withheld_row():
    copy = json.loads(withheld_copy(RECEIPT, {1}))
    copy["journal"]["events"][1]["said"] = "something else"
    assert verify_receipt(canonical_bytes(copy, Profile.PY_JSON)).divergent_step == 1


@pytest.mark.parametrize("name", ["b07-extension-set", "b10-endpoints"])
def test_rows_that_the_signature_speaks_of_cannot_be_withheld(name):
    receipt = (FOLDER / name / "expected" / "run-receipt.json").read_bytes()
    events = [row["event"] for row in json.loads(receipt)["journal"]["events"]]
    bound = next(
        step
        for step, event in enumerate(events)
        if event in {"agent_spawned", "loaded_extension_set"}
    )
    with pytest.raises(InvalidInput, match=events[bound]):
        withheld_copy(receipt, {bound})


def test_a_forger_who_withholds_such_a_row_breaks_the_signature():
    receipt = json.loads((FOLDER / "b07-extension-set/expected/run-receipt.json").read_bytes())
    events = receipt["journal"]["events"]
    step = next(at for at, row in enumerate(events) if row["event"] == "loaded_extension_set")
    kept = ("event", "event_hash", "index", "payload_hash", "prev_hash")
    events[step] = {name: events[step][name] for name in kept} | {"payload_withheld": True}
    verdict = verify_receipt(canonical_bytes(receipt, Profile.PY_JSON))
    assert verdict.exit_code() == 2
    assert "subject.digest" in verdict.errors[0]


def row_line(index: int, prev_hash: str, event: str, **payload) -> tuple[bytes, str]:
    payload_hash = sha256(canonical_bytes({"event": event, **payload}, Profile.PY_JSON)).hexdigest()
    event_text = canonical_bytes(event, Profile.PY_JSON)
    event_hash = sha256(link_bytes(prev_hash, event_text, payload_hash, index)).hexdigest()
    row = {
        **payload, "event": event, "index": index, "prev_hash": prev_hash,
        "payload_hash": payload_hash, "event_hash": event_hash,
    }  # fmt: skip
    return canonical_bytes(row, Profile.PY_JSON), event_hash


def signed(*rows: bytes) -> bytes:
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    builder = ReceiptBuilder("r")
    events = b"".join(builder.event_chunks(rows))
    subject = builder.subject()
    key = PublicKey(private.public_key().public_bytes_raw())
    signature = ReceiptSignature("k", key, private.sign(subject.preimage()))
    return receipt_head(len(rows)) + events + receipt_tail(subject, [], signature)


def test_a_row_that_really_says_so_is_not_taken_for_a_withheld_one():
    line, _ = row_line(0, "", "note", payload_withheld=True)
    verdict = verify_receipt(signed(line))
    assert (verdict.ok, verdict.withheld_events) == (True, 0)


def test_a_first_row_that_chooses_the_hash_profile_cannot_be_withheld():
    line, _ = row_line(0, "", "run_started", hash_profile="py-json-v1")
    with pytest.raises(InvalidInput, match="hash_profile"):
        withheld_copy(signed(line), {0})


def test_a_withheld_row_is_never_signed():
    copy = json.loads(withheld_copy(RECEIPT, {1}))
    rows = [canonical_bytes(row, Profile.PY_JSON) for row in copy["journal"]["events"]]
    builder = ReceiptBuilder("r")
    list(builder.event_chunks(rows))
    with pytest.raises(ChainBroken):
        builder.subject()


def test_a_receipt_that_does_not_verify_gives_no_copy():
    with pytest.raises(ReceiptMalformed, match="does not verify"):
        withheld_copy(RECEIPT.replace(b"run_started", b"run_stopped", 1), {1})


@pytest.mark.parametrize(
    ("text", "steps"),
    [("0", {0}), ("1,3", {1, 3}), ("1-3", {1, 2, 3}), ("0-0, 2", {0, 2}), ("2,1-2", {1, 2})],
)
def test_steps_are_named_like_pages(text, steps):
    assert parse_steps(text, COUNT) == steps


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "4", "3-1", "0-4", "1,,2", "1.0", "0-999999999999999", "9" * 500]
)
def test_other_steps_are_refused(text):
    with pytest.raises(InvalidInput):
        parse_steps(text, COUNT)
