"""Trouble met in the field with receipts: F14 (the signed envelope) and F15 (second hands)."""

import base64
import json
from pathlib import Path

import pytest

from bernstein_formats.dsse import preauth_encoding
from bernstein_formats.receipt_verdict import ReceiptStatus
from bernstein_formats.receipt_verify import verify_receipt

FIELD = Path(__file__).parent / "data" / "field"
PAIRS = json.loads((FIELD / "F14/pae.json").read_text())["cases"]


@pytest.mark.parametrize("pair", PAIRS, ids=[repr(pair["payload_type"]) for pair in PAIRS])
def test_lengths_in_the_envelope_count_bytes(pair):
    payload = base64.b64decode(pair["payload_base64"])
    expected = base64.b64decode(pair["pae_base64"])
    assert preauth_encoding(pair["payload_type"], payload) == expected


def verdict_of(name: str):
    return verify_receipt((FIELD / "F15" / name).read_bytes(), pin())


def pin() -> bytes:
    return (FIELD / "F15/public.pem").read_bytes()


def test_the_good_receipt_is_good():
    verdict = verdict_of("receipt.json")
    assert (verdict.ok, verdict.errors, verdict.layout_findings) == (True, (), ())


@pytest.mark.parametrize("name", ["pretty.json", "crlf.json", "trailing_blank_lines.json"])
def test_another_layout_verifies_and_is_told(name):
    verdict = verdict_of(name)
    assert verdict.ok
    assert "canonical bytes" in verdict.layout_findings[0]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("bom.json", "not one JSON"),
        ("two_documents.json", "not one JSON"),
        ("duplicate_run_id.json", "'run_id'"),
        ("duplicate_journal.json", "'journal'"),
    ],
)
def test_what_readers_could_take_in_two_ways_is_malformed(name, word):
    verdict = verdict_of(name)
    assert verdict.status is ReceiptStatus.MALFORMED
    assert word in verdict.errors[0]


def test_edited_members_that_nothing_covers_fail_or_are_listed():
    verdict = verdict_of("unsigned_members_edited.json")
    assert verdict.exit_code() == 2
    assert {(each.reason, each.index, each.member) for each in verdict.findings} == {
        ("unknown_member", None, "note"),
        ("unsigned_value_wrong", None, "signing.alg"),
        ("index_wrong", 0, "index"),
    }
    assert any("subject.name" in warning for warning in verdict.warnings)
