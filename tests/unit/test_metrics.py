"""The table of metrics, and those that only a failure moves."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import DiskFull, Unavailable
from bernstein_journal.pending_macs import AuditRow, PendingMacs
from bernstein_journal.run_log import Append
from bernstein_journal.writer import Writer, syncing_threads
from bernstein_runtime import limits, metrics, readiness
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.disk import check_room
from bernstein_runtime.readiness import Readiness
from bernstein_store.files import FileStore


@pytest.fixture(autouse=True)
def enabled() -> None:
    metrics.enable("journal")


def value(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_names_are_unique_and_counters_end_in_total() -> None:
    names = [metric.name for metric in metrics.TABLE]

    assert len(set(names)) == len(names)
    for metric in metrics.TABLE:
        assert metric.name.startswith("bernstein_")
        assert metric.name.endswith("_total") == (metric.kind is metrics.Kind.COUNTER)
        assert metric.help.endswith(".")
        assert metric.services


def test_rows_that_wait_for_the_signer_are_counted_until_they_are_stored(tmp_path: Path) -> None:
    is_away = True

    def apply(_: object) -> str:
        if is_away:
            raise Unavailable("away")
        return "hash"

    before = value("bernstein_pending_macs")
    pending = PendingMacs(FileStore(tmp_path), apply)
    for number in range(3):
        fields = AuditFields("t", "a", "b", "c", {}, is_anchored=True)
        pending.append(AuditRow(f"e{number}", "2026-03-01T10:00:00.000000Z", fields))
    waiting = value("bernstein_pending_macs")
    is_away = False
    pending.drain()
    pending.stop()

    assert waiting - before == 3
    assert value("bernstein_pending_macs") == before


def test_appends_are_counted_while_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    store.make_run("r")
    seen: list[float] = []
    really: Callable[..., Any] = Writer._take

    def take(writer: Writer) -> Any:
        seen.append(value("bernstein_queued_appends"))
        return really(writer)

    monkeypatch.setattr(Writer, "_take", take)
    syncing = syncing_threads()
    writer = Writer(store, SystemClock(), syncing)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda n: writer.append(Append("r", [("x", b"{}")], f"a{n}", None)), range(64))
        )
    writer.stop()
    syncing.shutdown()

    assert max(seen) >= 1
    assert value("bernstein_queued_appends") == 0


def test_a_service_is_not_ready_while_its_check_fails_or_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "EVERY_SECONDS", 60.0)
    failing: list[Exception] = []

    def check() -> None:
        if failing:
            raise failing[0]

    looked_at = Readiness()
    assert looked_at.refusal == readiness.STARTING
    looked_at.watch(check)
    assert (looked_at.refusal, value("bernstein_ready")) == ("", 1)
    failing.append(DiskFull("no room"))
    looked_at._look()
    assert (looked_at.refusal, value("bernstein_ready")) == ("DISK_FULL", 0)
    failing.clear()
    looked_at._look()
    assert looked_at.refusal == ""
    monkeypatch.setattr(readiness, "LATE_SECONDS", -1.0)
    assert looked_at.refusal == readiness.LATE
    looked_at.stop()
    assert looked_at.refusal == readiness.LATE


def test_a_disk_where_no_message_fits_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_room(tmp_path / "not" / "made")
    monkeypatch.setattr(limits, "MESSAGE_BYTES_MAX", 1 << 62)
    with pytest.raises(DiskFull, match="make room"):
        check_room(tmp_path)
