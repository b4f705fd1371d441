"""Laws of step journals: what is written is read back, edits are found, no crash loses a step."""

import json
from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bernstein_formats.errors import JournalError, ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.redaction import REDACTABLE, RedactionPolicy, redacted_rows
from bernstein_formats.session_diff import diff_steps
from bernstein_formats.session_journal import StepHead, next_step, parse_step
from bernstein_formats.session_journal_reader import FaultKind, entries
from bernstein_formats.session_journal_verify import recover_steps, seed_rows, verify_steps
from bernstein_formats.session_receipt import ReceiptRows, receipt_parts
from bernstein_formats.session_receipt_verify import verify_session_receipt

TEXTS = st.text(max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
STEPS = st.fixed_dictionaries(
    {"input_hash": DIGESTS},
    optional={
        "model": st.none() | TEXTS,
        "prompt": st.none() | TEXTS,
        "tool_call": VALUES,
        "tool_result": VALUES,
        "effort": st.none() | TEXTS,
        "blob_refs": st.lists(DIGESTS, max_size=2),
    },
)
SESSIONS = st.lists(STEPS, min_size=1, max_size=5)


# Machines that run the tests are busy.
LAW = settings(deadline=None)


def sorted_json(value: object) -> str:
    """JSON text by which 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True)


def written(steps: list[Row], head: StepHead | None = None) -> list[bytes]:
    lines, head = [], head or StepHead()
    for number, step in enumerate(steps):
        line, head = next_step(head, parse_step(json.dumps(step).encode()), 1.7e9 + number)
        lines.append(line + b"\n")
    return lines


@LAW
@given(SESSIONS)
def test_steps_are_read_back_as_they_were_appended(steps: list[Row]) -> None:
    lines = written(steps)
    found = list(entries(lines))
    assert verify_steps(lines).ok
    for row, step in zip(found, steps, strict=True):
        for name in ("input_hash", "model", "prompt", "tool_call", "tool_result", "effort"):
            assert sorted_json(row.get(name)) == sorted_json(step.get(name))
        assert row["blob_refs"] == step.get("blob_refs", [])


@LAW
@given(SESSIONS, st.integers(0), st.sampled_from(REDACTABLE), VALUES)
def test_an_edit_of_a_hashed_member_is_found_on_its_line(
    steps: list[Row], at: int, name: str, value: object
) -> None:
    lines = written(steps)
    at %= len(lines)
    row = json.loads(lines[at])
    assume(sorted_json(row[name]) != sorted_json(value))
    lines[at] = json.dumps({**row, name: value}).encode() + b"\n"
    found = verify_steps(lines)
    assert [(fault.kind, fault.line) for fault in found.faults] == [(FaultKind.STEP_HASH, at + 1)]
    with pytest.raises(JournalError):
        recover_steps(lines, "x")


@LAW
@given(SESSIONS, STEPS, st.integers(0))
def test_a_crash_at_any_byte_leaves_a_journal_that_goes_on(
    steps: list[Row], last: Row, cut: int
) -> None:
    kept = b"".join(written(steps))
    whole = b"".join(written([*steps, last]))
    torn = whole[: len(kept) + cut % (len(whole) - len(kept) + 1)]
    recovered = recover_steps([torn], "x")
    assert recovered.head.seq in (len(steps), len(steps) + 1)
    before = torn[: recovered.size] + (b"\n" if recovered.newline_missing else b"")
    assert before.startswith(kept)
    again = before + b"".join(written([last], recovered.head))
    found = verify_steps([again])
    assert (found.ok, found.steps) == (True, recovered.head.seq + 1)


def archive_of(lines: list[bytes]) -> bytes:
    rows = ReceiptRows()
    journal = b"".join(rows.lines(lines))
    manifest = rows.manifest("agent", "2026-01-01T00:00:00Z", "1")
    return b"".join(receipt_parts(manifest, b"", (len(journal), [journal]), []))


@LAW
@given(SESSIONS)
def test_an_exported_journal_verifies(steps: list[Row]) -> None:
    lines = written(steps)
    found = verify_session_receipt(archive_of(lines))
    assert (found.ok, found.steps, found.head_hash) == (
        True, len(steps), verify_steps(lines).head_hash,
    )  # fmt: skip


@LAW
@given(SESSIONS, st.integers(0), st.integers(1, 255))
def test_a_receipt_with_a_changed_byte_never_verifies_to_other_steps(
    steps: list[Row], at: int, change: int
) -> None:
    archive = bytearray(archive_of(written(steps)))
    good = verify_session_receipt(bytes(archive))
    archive[at % len(archive)] ^= change
    try:
        found = verify_session_receipt(bytes(archive))
    except ReceiptMalformed:
        return
    assert not found.ok or (found.head_hash, found.steps) == (good.head_hash, good.steps)


@LAW
@given(SESSIONS, st.sets(st.sampled_from(REDACTABLE)), st.booleans())
def test_publishing_is_idempotent_and_verifies(
    steps: list[Row], fields: set[str], keep_input_hash: bool
) -> None:
    policy = RedactionPolicy(frozenset(fields), keep_input_hash)
    once = list(redacted_rows(entries(written(steps)), policy))
    assert verify_steps(once).ok
    assert list(redacted_rows(entries(once), policy)) == once


@LAW
@given(SESSIONS, st.text("secretwords ", min_size=9, max_size=30))
def test_nothing_of_a_redacted_text_is_left_not_even_a_digest(
    steps: list[Row], secret: str
) -> None:
    """Two sessions that differ in what is redacted alone give the same published bytes."""
    policy = RedactionPolicy()
    published = []
    for text, digest in ((secret, "a" * 64), ("other", "b" * 64)):
        rows: list[Row] = [
            {**step, "prompt": text, "tool_result": [text], "input_hash": digest} for step in steps
        ]
        published.append(list(redacted_rows(entries(written(rows)), policy)))
    assert published[0] == published[1]


@LAW
@given(SESSIONS, STEPS, st.integers(0))
def test_a_fork_goes_on_to_the_parents_own_hashes(steps: list[Row], own: Row, at: int) -> None:
    lines = written([*steps, own])
    seeded: list[bytes] = []
    head = seed_rows(lines, len(steps) - 1, "x", seeded.append)
    assert seeded == lines[:-1]
    ours, theirs = written([own], head)[0], lines[-1]
    assert json.loads(ours)["step_hash"] == json.loads(theirs)["step_hash"]
    assert diff_steps(entries(lines), entries([*seeded, ours])) is None


@LAW
@given(st.binary(max_size=300))
def test_no_bytes_make_a_reader_fail_otherwise_than_by_name(data: bytes) -> None:
    verify_steps([data])
    with suppress(JournalError):
        recover_steps([data], "x")
    with pytest.raises(ReceiptMalformed):
        verify_session_receipt(data)
