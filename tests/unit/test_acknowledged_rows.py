"""A chain that no longer holds the last row that was acknowledged is not gone on with."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.acknowledged import Acknowledged, acknowledged, last_line, read_marks
from bernstein_formats.audit_log import AuditFields, read_audit_row
from bernstein_formats.errors import RowsMissing
from bernstein_formats.mac import mac_keys
from bernstein_formats.spine import SpineFields
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.audit_log import AuditLog
from bernstein_journal.signer import MadeSpineRow
from bernstein_journal.spine_log import SpineLogs
from bernstein_signer.mac_rows import make_audit_row, make_spine_row
from bernstein_store.files import FileStore

KEYS = mac_keys(b"5f" * 32)
DAY_1, DAY_2 = "audit/2026-03-01.jsonl", "audit/2026-03-02.jsonl"


class NearSigner:
    """The signer's functions without its process."""

    def make_spine_row(self, line: bytes, count: int, fields: SpineFields) -> MadeSpineRow:
        made = make_spine_row(line, count, fields, KEYS)
        return MadeSpineRow(made.line, made.head_json)

    def make_audit_row(self, line: bytes, timestamp: str, fields: AuditFields) -> bytes:
        return make_audit_row(line, timestamp, fields, KEYS)


SIGNER: Any = NearSigner


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def append_event(store, number, day=1):
    log = AuditLog(store, SIGNER)
    event = AuditFields("x", "a", "task", f"T-{number}")
    log.append(event, f"2026-03-0{day}T10:00:00.000000Z", f"event-{number}")


def append_entry(store, number):
    fields = SpineFields(f"p{number}", "sha256:0", "a", f"s{number}", "", number)
    SpineLogs(store, SIGNER).append("r", fields, f"entry-{number}")


def written_by_another(path: Path, day: int = 1) -> None:
    """Another program's event behind the last one."""
    before = path.read_bytes().splitlines()
    event = AuditFields("x", "peer", "task", "theirs")
    line = make_audit_row(before[-1], f"2026-03-0{day}T11:00:00.000000Z", event, KEYS)
    path.write_bytes(path.read_bytes() + line + b"\n")


def cut_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": cut_last_line,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("days", [(1, 1), (1, 2)])
def test_an_audit_log_that_was_cut_is_not_continued(store, tmp_path, loss, days):
    for number, day in enumerate(days):
        append_event(store, number, day)
    path = tmp_path / (DAY_1 if days[1] == 1 else DAY_2)
    LOSSES[loss](path)
    left = path.read_bytes() if path.exists() else None

    with pytest.raises(RowsMissing, match="accept-loss"):
        append_event(store, 9, days[1])

    assert (path.read_bytes() if path.exists() else None) == left
    assert path.name in AcknowledgedRows(store).missing_events()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [1, 3])
def test_a_spine_that_was_cut_is_not_continued(store, tmp_path, loss, count):
    for number in range(count):
        append_entry(store, number)
    path = tmp_path / "lineage/r/spine.jsonl"
    LOSSES[loss](path)
    with pytest.raises(RowsMissing, match="accept-loss"):
        append_entry(store, 9)


def test_what_others_wrote_behind_the_acknowledged_row_is_no_loss(store, tmp_path):
    append_event(store, 1)
    written_by_another(tmp_path / DAY_1)
    append_event(store, 2)
    written_by_another(tmp_path / DAY_1)
    assert AcknowledgedRows(store).missing_events() == ""
    cut_last_line(tmp_path / DAY_1)  # theirs, which was not acknowledged by us
    append_event(store, 3, 2)


def test_a_day_that_was_packed_is_no_loss_unless_its_end_is_gone(store, tmp_path):
    for number in range(3):
        append_event(store, number)
    whole = (tmp_path / DAY_1).read_bytes()
    (tmp_path / DAY_1).unlink()
    packed = tmp_path / "audit/archive/2026-03-01.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(whole))
    append_event(store, 3, 2)
    (tmp_path / DAY_2).unlink()
    store.accept_log(DAY_2)
    assert AcknowledgedRows(store).missing_events() == ""
    packed.write_bytes(gzip.compress(b"".join(whole.splitlines(keepends=True)[:2])))
    with pytest.raises(RowsMissing, match="bytes were acknowledged"):
        append_event(store, 4, 2)


def test_a_longer_file_in_the_place_of_the_acknowledged_one_is_noticed(store, tmp_path):
    append_event(store, 1)
    path = tmp_path / DAY_1
    other = AuditFields("x", "a", "task", "another" * 20)
    path.write_bytes(make_audit_row(b"", "2026-03-01T09:00:00.000000Z", other, KEYS) + b"\n")
    with pytest.raises(RowsMissing, match="is not in its place"):
        append_event(store, 2)


def test_a_log_from_before_confirmations_raises_no_alarm(store, tmp_path):
    append_event(store, 1)
    (marks,) = (tmp_path / "svc/marks").iterdir()
    marks.write_bytes(marks.read_bytes().splitlines(keepends=True)[0])
    append_event(store, 2)
    assert read_audit_row((tmp_path / DAY_1).read_bytes().splitlines()[1])


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (b"", Acknowledged()),
        (b"0 5 1 0 a one\n", Acknowledged()),
        (b"0 5 1 0 a one\n5 5 1 0  one\n", Acknowledged(5, "one")),
        (b"0 5 1 0 a one\n5 9 1 0 b two\n", Acknowledged(5)),
        (b"0 5 1 0 a one\n5 5 1 0  one\n5 9 1 0 b two\n5 12 1 1 c 3\n", Acknowledged(5, "one")),
        (b"0 5 1 0 a one\n5 5 1 0  one\n5 9 1 0 b two\n9 9", Acknowledged(5, "one")),
        (b"9" * 5000 + b" 5 1 0 a b\n\xff\n", Acknowledged()),
    ],
)
def test_only_what_was_confirmed_or_built_upon_is_acknowledged(lines, known):
    assert acknowledged(read_marks(lines)) == known


def test_the_line_before_an_offset_is_found_however_long_it_is():
    data = b"first\n" + b"x" * 700_000 + b"\nlast\n"
    for end, line in ((6, b"first"), (700_007, b"x" * 700_000), (len(data), b"last"), (0, b"")):
        assert last_line(lambda start, stop: data[start:stop], end) == line
