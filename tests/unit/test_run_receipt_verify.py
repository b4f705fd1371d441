"""Verifying: bytes of every kind, the COSE file, and both ways through the file."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.cose import CoseSign1, cose_bytes, parse_cose
from bernstein_formats.receipt_read import canonical_document
from bernstein_formats.receipt_verdict import ReceiptStatus, ReceiptTier, ReceiptVerdict
from bernstein_formats.receipt_verify import verify_receipt

FOLDER = Path(__file__).parents[1] / "vectors" / "data" / "receipts"
EXPECTED = FOLDER / "b02-journal-and-spine" / "expected"
RECEIPT = (EXPECTED / "run-receipt.json").read_bytes()
COSE = (EXPECTED / "run-receipt.cose").read_bytes()
PIN = (EXPECTED / "public-key.pem").read_bytes()


def changed(**members) -> bytes:
    return canonical_bytes({**json.loads(RECEIPT), **members}, Profile.PY_JSON) + b"\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\x00",
        b"\xff",
        b'"',
        b"{" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"run_id":' + b"9" * 5000 + b"}",
        RECEIPT[:-2],
        RECEIPT + RECEIPT,
        RECEIPT.replace(b'"journal":{', b'"journal":[{', 1),
        RECEIPT.replace(b'"events":[', b'"events":[5,', 1),
        changed(journal=None),
        changed(journal={"events": {}}),
        changed(journal={"events": [None]}),
        changed(spine={"entries": [5]}),
        changed(signing=[]),
        changed(subject=5),
        changed(subject={"digest": []}),
        changed(run_id=["r"]),
        changed(hash_profile=["jcs-v2"]),
        changed(schema_version=[]),
        changed(receipt_type=None),
        changed(audit_range=5),
        changed(audit_range={"events": 5}),
    ],
)
def test_bytes_that_are_no_receipt_are_malformed(data):
    verdict = verify_receipt(data)
    assert verdict.status is ReceiptStatus.MALFORMED
    assert verdict.exit_code() == 1
    assert len(verdict.errors) == 1


def test_a_tampered_receipt_is_told_before_an_unusable_pin():
    tampered = RECEIPT.replace(b"run_started", b"run_stopped", 1)
    assert verify_receipt(tampered, b"no key").status is ReceiptStatus.TAMPERED
    assert verify_receipt(RECEIPT, b"no key").status is ReceiptStatus.MALFORMED


def test_a_missing_final_newline_is_no_other_layout():
    assert verify_receipt(RECEIPT.rstrip(b"\n")).layout_findings == ()
    assert verify_receipt(RECEIPT + b"\n").layout_findings != ()


def test_rows_with_objects_side_by_side_are_still_read_on_the_way():
    assert RECEIPT.startswith(b'{"journal":')
    for name in ("b07-extension-set", "b08-extension-set-last-wins"):
        data = (FOLDER / name / "expected" / "run-receipt.json").read_bytes()
        assert b"},{" in data
        document = canonical_document(data)
        assert len(list(document.rows)) == len(json.loads(data)["journal"]["events"])


def test_a_signer_must_be_named_in_text():
    unnamed = json.loads(RECEIPT)
    del unnamed["signing"]["key_id"], unnamed["signing"]["public_key_jwk"]["kid"]
    verdict = verify_receipt(canonical_bytes(unnamed, Profile.PY_JSON) + b"\n")
    assert [each.member for each in verdict.findings] == ["signing.key_id"]
    assert verdict.exit_code() == 2


def test_rows_hidden_elsewhere_are_not_taken_for_the_journals():
    hidden = json.loads(RECEIPT)
    hidden["audit_range"] = {"events": [{"journal": hidden["journal"]}]}
    data = canonical_bytes(hidden, Profile.PY_JSON) + b"\n"
    assert verify_receipt(data).status is ReceiptStatus.TAMPERED


def test_a_cose_file_of_the_same_run_and_key_holds():
    verdict = verify_receipt(RECEIPT, PIN, COSE)
    assert (verdict.ok, verdict.cose_verified) == (True, True)


ENVELOPE = parse_cose(COSE)


@pytest.mark.parametrize(
    ("envelope", "word"),
    [
        (replace(ENVELOPE, payload=b"{}"), "another receipt"),
        (replace(ENVELOPE, kid=b"other"), "kid"),
        (replace(ENVELOPE, content_type="text/plain"), "content type"),
        (replace(ENVELOPE, signature=bytes(64)), "signature"),
    ],
)
def test_a_cose_file_that_says_something_else_is_tampered(envelope: CoseSign1, word):
    verdict = verify_receipt(RECEIPT, PIN, cose_bytes(envelope))
    assert verdict.status is ReceiptStatus.TAMPERED
    assert word in verdict.errors[0]


@pytest.mark.parametrize("cose", [b"", b"garbage", COSE + b"\n", COSE[1:]])
def test_a_cose_file_of_another_shape_is_tampered(cose):
    verdict = verify_receipt(RECEIPT, PIN, cose)
    assert (verdict.status, verdict.exit_code()) == (ReceiptStatus.TAMPERED, 2)


def test_where_receipts_share_a_folder_the_cose_file_of_another_is_a_warning():
    of_another = cose_bytes(replace(ENVELOPE, payload=b"{}"))
    verdict = verify_receipt(RECEIPT, PIN, of_another, cose_may_be_of_another=True)
    assert (verdict.ok, verdict.cose_verified) == (True, False)
    assert "another receipt" in verdict.warnings[0]
    garbage = verify_receipt(RECEIPT, PIN, b"garbage", cose_may_be_of_another=True)
    assert garbage.status is ReceiptStatus.TAMPERED


def test_the_receipt_of_another_run_than_the_expected_one_is_a_finding():
    run_id = verify_receipt(RECEIPT).run_id
    assert verify_receipt(RECEIPT, expected_run_id=run_id).ok
    verdict = verify_receipt(RECEIPT, PIN, expected_run_id="another-run")
    assert [(each.reason, each.member) for each in verdict.findings] == [
        ("run_unexpected", "run_id")
    ]
    assert verdict.exit_code() == 2


@pytest.mark.parametrize(
    ("verdict", "exit_code"),
    [
        (ReceiptVerdict(ReceiptStatus.OK, ReceiptTier.PROVENANCE), 0),
        (ReceiptVerdict(ReceiptStatus.OK, ReceiptTier.INTEGRITY_ONLY), 3),
        (ReceiptVerdict(ReceiptStatus.MALFORMED), 1),
        (ReceiptVerdict(ReceiptStatus.TAMPERED), 2),
        (ReceiptVerdict(ReceiptStatus.UNTRUSTED_KEY), 4),
    ],
)
def test_exit_codes_are_the_peers(verdict, exit_code):
    assert verdict.exit_code(require_provenance=True) == exit_code


WITHOUT_ORJSON = """
import sys
sys.modules["orjson"] = None
from pathlib import Path
from bernstein_formats.receipt_verify import verify_receipt
for path in sorted(Path(sys.argv[1]).glob("*/input/run-receipt.json")):
    print(path.parts[-3], repr(verify_receipt(path.read_bytes())))
"""


def test_the_verdicts_without_orjson_are_the_same():
    command = [sys.executable, "-c", WITHOUT_ORJSON, str(FOLDER)]
    path = str(Path(__file__).parents[2] / "formats")
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    expected = [
        f"{each.parts[-3]} {verify_receipt(each.read_bytes())!r}"
        for each in sorted(FOLDER.glob("*/input/run-receipt.json"))
    ]
    assert ran.stdout.splitlines() == expected
    assert len(expected) > 100
