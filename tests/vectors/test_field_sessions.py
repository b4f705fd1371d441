"""Trouble that people met with session journals (field cases F08, F18, F19)."""

import json
from pathlib import Path

import pytest

from bernstein_formats.errors import JournalError, ReceiptMalformed
from bernstein_formats.session_branches import branch_lines, find_branches
from bernstein_formats.session_journal import StepHead, next_step
from bernstein_formats.session_journal_reader import FaultKind
from bernstein_formats.session_journal_verify import recover_steps, verify_steps
from bernstein_formats.session_receipt_verify import verify_session_receipt

FIELD = Path(__file__).parent / "data" / "field"
BUNDLES = FIELD / "F18"
STEP = {"input_hash": "0" * 64, "prompt": "next"}


def test_f08_the_next_append_is_not_glued_to_a_torn_line() -> None:
    torn = (FIELD / "F08" / "torn.jsonl").read_bytes()
    expected = json.loads((FIELD / "F08" / "expected.json").read_bytes())
    recovered = recover_steps([torn], "torn")
    assert recovered.head == StepHead(3, expected["tip"])
    assert (recovered.torn_line, len(torn) - recovered.size) == (4, 28)
    line, _ = next_step(recovered.head, STEP, 0.0)
    whole = torn[: recovered.size] + line + b"\n"
    found = verify_steps([whole])
    assert (found.ok, found.steps) == (True, 4)


def test_f18_a_good_bundle_verifies_and_says_what_nobody_vouches_for() -> None:
    found = verify_session_receipt((BUNDLES / "good.tar").read_bytes())
    assert (found.ok, found.missing_blobs) == (True, ())
    assert found.unauthenticated == ("agent_id", "bernstein_version", "created_at")


def test_f18_a_missing_blob_is_its_own_verdict() -> None:
    found = verify_session_receipt((BUNDLES / "blob_missing.tar").read_bytes())
    assert found.ok
    assert [digest[:8] for digest in found.missing_blobs] == ["e71b7e88"]


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [("blob_replaced", FaultKind.BLOB_DIGEST, None), ("seq_is_text", FaultKind.SEQ, 2)],
)
def test_f18_a_swapped_part_is_found(name: str, kind: FaultKind, line: int | None) -> None:
    found = verify_session_receipt((BUNDLES / f"{name}.tar").read_bytes())
    assert not found.ok
    assert (kind, line) in [(fault.kind, fault.line) for fault in found.faults]


@pytest.mark.parametrize("name", ["extra_member", "climbing_member", "manifest_twice", "format_99"])
def test_f18_a_bundle_with_parts_that_have_no_place_is_refused(name: str) -> None:
    with pytest.raises(ReceiptMalformed):
        verify_session_receipt((BUNDLES / f"{name}.tar").read_bytes())


def test_f19_a_forked_journal_is_refused_and_both_branches_can_be_had() -> None:
    forked = (FIELD / "F19" / "forked.jsonl").read_bytes()
    with pytest.raises(JournalError) as refused:
        recover_steps([forked], "forked")
    assert refused.value.metadata["line"] == "3"
    branches = find_branches([forked])
    assert [branch.lines for branch in branches] == [(1, 2), (1, 3)]
    for branch in branches:
        copied = b"".join(branch_lines([forked], branch))
        found = verify_steps([copied])
        assert (found.ok, found.head_hash, found.steps) == (True, branch.head_hash, 2)
