"""Rows wait in order while the signer is away, survive a restart, and hold up only their own."""

from pathlib import Path

import pytest

from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import ChainBroken, KeyUnusable, StoreFailed, Unavailable
from bernstein_formats.spine import SpineFields
from bernstein_journal.pending_macs import QUEUE, AuditRow, PendingMacs, SpineRow, WaitingRow
from bernstein_store.files import FileStore


class Target:
    """What rows are appended to: notes them, or refuses."""

    def __init__(self) -> None:
        self.rows: list[WaitingRow] = []
        self.away = False
        self.broken = ""

    def __call__(self, row: WaitingRow) -> str:
        if self.away:
            raise Unavailable("away")
        if row.target == self.broken:
            raise ChainBroken("broken")
        self.rows.append(row)
        return f"hash of {row.request_id}"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def event(number: int) -> AuditRow:
    fields = AuditFields("é", "a", "b", "c", {"n": [1.5, None]}, is_anchored=True)
    return AuditRow(f"e{number}", "2026-03-01T10:00:00.000000Z", fields)


def entry(number: int, run_id: str = "r") -> SpineRow:
    fields = SpineFields("p", "sha256:0", "a", "s", "", number, baggage="b")
    return SpineRow(f"s{number}-{run_id}", run_id, fields)


def test_a_row_is_appended_at_once_and_nothing_is_written_beside(store):
    target = Target()
    assert PendingMacs(store, target).append(event(1)) == "hash of e1"
    assert store.get(QUEUE) is None


def test_rows_wait_across_a_restart_and_come_in_their_order(store):
    target = Target()
    target.away = True
    before = PendingMacs(store, target)
    waiting: list[WaitingRow] = [event(1), entry(1), event(2), entry(2)]
    assert [before.append(row) for row in waiting] == [None] * 4
    assert before.append(event(1)) is None  # a retry of the caller's
    before.stop()

    target.away = False
    after = PendingMacs(store, target)
    assert (after.waiting("audit log"), after.waiting("spine of run r")) == (2, 2)
    assert after.append(event(3)) is None  # not before those that wait
    after.drain()
    after.stop()

    assert target.rows == [*waiting, event(3)]
    assert after.append(event(4)) == "hash of e4"
    assert PendingMacs(store, target).waiting("audit log") == 0


def test_a_broken_target_holds_up_its_own_rows_only(store):
    target = Target()
    target.away = True
    pending = PendingMacs(store, target)
    for row in (entry(1), entry(1, "other"), entry(2)):
        pending.append(row)
    target.away, target.broken = False, "spine of run r"
    pending.drain()
    assert target.rows == [entry(1, "other")]
    assert pending.waiting("spine of run r") == 2
    target.broken = ""
    pending.drain()
    pending.stop()
    assert target.rows == [entry(1, "other"), entry(1), entry(2)]


def test_what_only_the_caller_can_mend_is_told_and_not_kept(store):
    def refuse(row: WaitingRow) -> str:
        raise KeyUnusable("no key")

    pending = PendingMacs(store, refuse)
    with pytest.raises(KeyUnusable):
        pending.append(event(1))
    assert pending.waiting("audit log") == 0


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b'[{"kind": "spine"}]', b"[" * 100_000, b'{"a": 1}', b"\xff"]
)
def test_a_queue_that_cannot_be_read_is_not_thrown_away(store, content):
    store.put(QUEUE, content)
    with pytest.raises(StoreFailed, match="restore it from a copy"):
        PendingMacs(store, Target())
    assert store.get(QUEUE) == content
