"""The ledger: what it acknowledged is there, and from a changed one nothing is signed."""

import errno
import os
from hashlib import sha256
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bernstein_formats.errors import (
    Conflict,
    DiskFull,
    ForeignWriter,
    LedgerRefused,
    StoreFailed,
)
from bernstein_formats.seal import (
    NO_ENTRY_HASH,
    Entry,
    ReceiptMade,
    check_seal,
    parse_entry,
    parse_seal,
)
from bernstein_runtime.clock import FixedClock
from bernstein_signer.key import load_key_file
from bernstein_signer.ledger import Head, Ledger, Run, head_of
from bernstein_signer.resident import open_seal_key

RUN, OTHER = Run("host:/p", "run-1"), Run("host:/q", "run-1")
ONE, TWO = Head(1, "aa" * 32), Head(2, "bb" * 32)


def open_ledger(folder: Path) -> Ledger:
    return Ledger(folder, open_seal_key(folder), FixedClock(1_772_366_400.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a ledger of three entries, closed."""
    ledger = open_ledger(tmp_path)
    first = ledger.seal(RUN, ONE, None)
    ledger.seal(OTHER, ONE, None)
    ledger.seal(RUN, TWO, first.entry)
    ledger.close()
    return tmp_path


def lines_in(folder: Path) -> list[bytes]:
    return (folder / "ledger.jsonl").read_bytes().splitlines()


def rewrite(folder: Path, data: bytes) -> None:
    (folder / "ledger.jsonl").write_bytes(data)


def test_entries_are_chained_signed_and_dated(folder: Path):
    entries = [parse_entry(line) for line in lines_in(folder)]
    assert [entry.body.index for entry in entries] == [0, 1, 2]
    assert [NO_ENTRY_HASH, *(sha256(line).hexdigest() for line in lines_in(folder)[:2])] == [
        entry.body.prev_entry_hash for entry in entries
    ]
    assert {"2026-03-01T12:00:00Z"} == {entry.body.sealed_at for entry in entries}
    for entry in entries:
        entry.check_signature(load_key_file(folder / "seal-key.pem").public_key)


def test_a_run_is_origin_and_id_and_its_newest_seal_is_found_again(folder: Path):
    ledger = open_ledger(folder)
    assert [head_of(found(ledger, run)) for run in (RUN, OTHER)] == [TWO, ONE]
    assert ledger.find_run(Run("host:/p", "run-2")) is None


def found(ledger: Ledger, run: Run) -> Entry:
    entry = ledger.find_run(run)
    assert entry is not None
    return entry


def test_the_same_rows_give_the_same_seal_and_no_entry(folder: Path):
    ledger = open_ledger(folder)
    again = ledger.seal(RUN, TWO, None)
    assert 3 == len(ledger) == len(lines_in(folder))
    assert lines_in(folder)[2] == again.entry.line()
    check_seal(parse_seal(again.file_bytes()))


def test_rows_checked_against_an_older_seal_are_not_sealed(folder: Path):
    ledger = open_ledger(folder)
    with pytest.raises(Conflict, match="meanwhile"):
        ledger.seal(RUN, Head(3, "cc" * 32), parse_entry(lines_in(folder)[0]))
    assert len(lines_in(folder)) == 3


def test_a_receipt_is_noted_once(folder: Path):
    ledger = open_ledger(folder)
    for _ in range(2):
        ledger.note_receipt(RUN, TWO, ReceiptMade("ab" * 32, "key"))
    ledger.close()
    assert len(lines_in(folder)) == 4
    assert head_of(found(open_ledger(folder), RUN)) == TWO


def test_a_torn_last_line_is_cut_and_told(folder: Path):
    whole = (folder / "ledger.jsonl").read_bytes()
    rewrite(folder, whole + lines_in(folder)[2][:100])
    with capture_logs() as logs:
        ledger = open_ledger(folder)
    assert [(line["event"], line["bytes"]) for line in logs] == [("torn_tail_cut", 100)]
    ledger.seal(Run("o", "next"), ONE, None)
    ledger.close()
    assert len(open_ledger(folder)) == 4


def break_a_byte(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"event_count":1', b'"event_count":2'), *lines[1:]]


def spell_differently(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b",", b", ", 1), *lines[1:]]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (break_a_byte, 1),
        (spell_differently, 1),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[0], lines[2], lines[1]], 2),
        (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
        (lambda lines: [*lines, b""], 4),
        (lambda lines: [*lines[:2], b"\0" * 50], 3),
        (lambda lines: [*lines, lines[2].replace(b'"index":2', b'"index":3')], 4),
    ],
    ids=[
        "changed", "respelled", "first gone", "middle gone", "swapped", "doubled", "blank", "zeros",
        "renumbered",
    ],
)  # fmt: skip
def test_a_changed_ledger_stops_the_signer_and_the_line_is_named(folder: Path, change, line: int):
    data = b"".join(each + b"\n" for each in change(lines_in(folder)))
    rewrite(folder, data)
    with pytest.raises(LedgerRefused, match=f"line {line}:") as caught:
        open_ledger(folder)
    assert str(line) == caught.value.metadata["line"]
    assert data == (folder / "ledger.jsonl").read_bytes()


def test_a_last_entry_signed_by_another_key_stops_the_signer(folder: Path):
    entry = parse_entry(lines_in(folder)[2])
    forged = Entry(entry.body, bytes(64)).line()
    rewrite(folder, b"".join(line + b"\n" for line in [*lines_in(folder)[:2], forged]))
    with pytest.raises(LedgerRefused, match="not signed by its key"):
        open_ledger(folder)


def test_a_ledger_cut_at_a_line_opens_but_does_not_reach_a_seal_that_was_given(folder: Path):
    ledger = open_ledger(folder)
    newest = ledger.seal(RUN, TWO, None)
    ledger.check_reaches(newest)
    ledger.close()
    rewrite(folder, b"".join(line + b"\n" for line in lines_in(folder)[:2]))
    cut = open_ledger(folder)
    with pytest.raises(LedgerRefused, match="cut or replaced"):
        cut.check_reaches(newest)
    cut.seal(Run("o", "fork"), ONE, None)
    with pytest.raises(LedgerRefused, match="cut or replaced"):
        cut.check_reaches(newest)


def test_key_and_ledger_are_made_together_and_neither_alone(tmp_path: Path):
    open_seal_key(tmp_path)
    (tmp_path / "seal-key.pem").rename(tmp_path / "kept")
    key = open_seal_key(tmp_path)  # an empty ledger: its key was never used
    Ledger(tmp_path, key, FixedClock()).seal(RUN, ONE, None)
    (tmp_path / "seal-key.pem").rename(tmp_path / "kept")
    with pytest.raises(LedgerRefused, match=r"seal-key\.pem is gone"):
        open_seal_key(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "seal-key.pem")
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(LedgerRefused, match=r"ledger\.jsonl is gone"):
        open_seal_key(tmp_path)


def test_one_signer_a_ledger(folder: Path):
    ledger = open_ledger(folder)
    with pytest.raises(Conflict, match="another signer"):
        open_ledger(folder)
    ledger.close()
    open_ledger(folder)


def test_a_ledger_that_changes_under_the_signer_is_not_written_to(folder: Path):
    ledger = open_ledger(folder)
    rewrite(folder, b"")
    with pytest.raises(ForeignWriter):
        ledger.seal(Run("o", "next"), ONE, None)
    assert (folder / "ledger.jsonl").read_bytes() == b""
    with pytest.raises(StoreFailed, match="closed after a failure"):
        ledger.seal(Run("o", "next"), ONE, None)


def test_a_full_disk_leaves_no_part_of_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch):
    ledger = open_ledger(folder)
    before = (folder / "ledger.jsonl").read_bytes()
    write = os.write

    def short(descriptor: int, data: memoryview) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:-50])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        with pytest.raises(DiskFull):
            ledger.seal(Run("o", "next"), ONE, None)
    assert before == (folder / "ledger.jsonl").read_bytes()
    ledger.seal(Run("o", "next"), ONE, None)
    assert len(lines_in(folder)) == 4


def test_nothing_is_said_or_done_after_a_failed_sync(folder: Path, monkeypatch: pytest.MonkeyPatch):
    ledger = open_ledger(folder)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreFailed, match="unknown"):
            ledger.seal(Run("o", "next"), ONE, None)
    with pytest.raises(StoreFailed, match="closed"):
        ledger.seal(Run("o", "next"), ONE, None)
