"""Rows are recomputed whatever the size of the pieces; what is signed is what the peer signs."""

import base64
import json
from hashlib import sha256
from pathlib import Path

import pytest

from bernstein_formats import journal_reader
from bernstein_formats.cose import parse_cose
from bernstein_formats.errors import LedgerRefused, LimitExceeded
from bernstein_formats.seal import NO_ENTRY_HASH, Entry, EntryBody
from bernstein_signer.key import load_key_file
from bernstein_signer.ledger import Head, Run
from bernstein_signer.rows import Rows

VECTORS = Path(__file__).parents[1] / "vectors" / "data" / "receipts"
# Built by the peer from rows and spine alone, with a key file.
BUILDS = (
    "b01-minimal", "b02-journal-and-spine", "b03-unicode", "b04-spine-trace-context",
    "b07-extension-set", "b10-endpoints", "b32-blank-lines-crlf", "b42-sealed-run",
)  # fmt: skip


def run_of(vector: Path) -> Run:
    receipt = json.loads((vector / "expected" / "run-receipt.json").read_bytes())
    return Run("host:/project", receipt["run_id"])


def stored(vector: Path, run: Run) -> tuple[bytes, bytes]:
    sdd = vector / "input" / ".sdd"
    spine = sdd / "lineage" / run.run_id / "spine.jsonl"
    journal = (sdd / "runs" / run.run_id / "journal.jsonl").read_bytes()
    return journal, spine.read_bytes() if spine.exists() else b""


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [7, 1_000_000])
@pytest.mark.parametrize("name", BUILDS)
def test_a_receipt_of_the_peer_is_signed_to_the_same_bytes(name: str, size: int):
    vector = VECTORS / name
    run = run_of(vector)
    journal, spine = stored(vector, run)
    file = (vector / "expected" / "run-receipt.json").read_bytes()
    receipt = json.loads(file)
    taken = Rows(run, None, receipt["journal"]["event_count"])
    taken.take_journal(pieces(journal, size))
    taken.take_spine(pieces(spine, size))
    key = load_key_file(vector / "input" / "signing-key.pem", receipt["signing"]["key_id"])
    made = taken.sign(key)
    assert base64.b64encode(made.signature).decode() == receipt["signing"]["signature_b64"]
    cose = parse_cose((vector / "expected" / "run-receipt.cose").read_bytes())
    assert made.cose_signature == cose.signature
    assert made.sha256 == sha256(file).digest()


def sealed(run: Run, head: Head) -> Entry:
    body = EntryBody(
        index=0,
        prev_entry_hash=NO_ENTRY_HASH,
        origin=run.origin,
        run_id=run.run_id,
        event_count=head.event_count,
        head_hash=head.head_hash,
        sealed_at="2026-03-01T12:00:00Z",
    )
    return Entry(body, bytes(64))


@pytest.mark.parametrize(
    ("count", "what"), [(3, None), (4, None), (5, "cut off its end")], ids=["grown", "same", "cut"]
)
def test_rows_are_held_against_the_sealed_head_at_its_own_place(count: int, what: str | None):
    vector = VECTORS / "b02-journal-and-spine"
    run = run_of(vector)
    journal, _ = stored(vector, run)
    lines = journal.splitlines(keepends=True)
    head_hash = json.loads(lines[min(count, len(lines)) - 1])["event_hash"]
    taken = Rows(run, sealed(run, Head(count, head_hash)))
    taken.take_journal(lines)
    if what is None:
        assert taken.head().event_count == len(lines) == 4
        return
    with pytest.raises(LedgerRefused, match=what):
        taken.head()


def test_changed_rows_are_refused_where_they_depart():
    vector = VECTORS / "b02-journal-and-spine"
    run = run_of(vector)
    journal, _ = stored(vector, run)
    taken = Rows(run, sealed(run, Head(2, "ab" * 32)))
    with pytest.raises(LedgerRefused, match="rows were changed") as caught:
        taken.take_journal([journal])
    assert caught.value.metadata["event_count"] == caught.value.metadata["sealed_count"] == "2"


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal_reader, "LINE_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="more than 100 bytes"):
        Rows(Run("o", "r"), None).take_journal([b"x" * 60, b"\n" + b"x" * 60, b"x" * 60])
