"""Owners, touches and fences: kept by every store, seen by every process."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bernstein_formats.errors import BernsteinError, StoreFailed
from bernstein_runtime.clock import FixedClock
from bernstein_runtime.fences import Fence
from bernstein_runtime.targets import EVERYTHING, Kind, Target
from bernstein_store import run_records
from bernstein_store.run_records import RunRecords, Touch
from bernstein_store.store import Store

RUN = Target(Kind.RUN, "run-1")
SESSION = Target(Kind.SESSION, "agent:1")
HOUR = 3600
NOON = 1_700_000_000 // 86400 * 86400 + 12 * HOUR


def records(store: Store, clock: FixedClock | None = None, service: str = "journal") -> RunRecords:
    return RunRecords(store, service, clock or FixedClock(NOON))


def test_a_run_belongs_to_whoever_opened_it_first(store: Store) -> None:
    journal, recorder = records(store), records(store, service="recorder")
    assert journal.owner(RUN) == ""
    assert journal.claim(RUN, "host1") == "host1"
    assert recorder.claim(RUN, "host2") == "host1"
    assert recorder.owner(RUN) == "host1"
    assert records(store).owner(RUN) == "host1"
    assert journal.claim(SESSION, "host2") == "host2"


def test_of_many_that_claim_a_run_at_once_one_gets_it(store: Store) -> None:
    each = [records(store) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: each[number].claim(RUN, f"host{number}"), range(4)))
    assert len(set(found)) == 1


@pytest.mark.parametrize("name", ["../x", "", "a/b", "\0", "x" * 300])
def test_what_is_no_id_belongs_to_nobody(store: Store, name: str) -> None:
    for kind in Kind:
        with pytest.raises(BernsteinError):
            records(store).claim(Target(kind, name), "host1")


def test_what_a_caller_changed_is_listed_once_an_hour_and_for_each_service(store: Store) -> None:
    clock = FixedClock(NOON)
    journal, recorder = records(store, clock), records(store, clock, "recorder")
    journal.touch("host1", RUN, "a.b.Journal/AppendEvents")
    journal.touch("host1", RUN, "a.b.Journal/FinishRun")
    journal.touch("host2", SESSION, "a.b.Journal/AppendSteps")
    recorder.touch("host1", RUN, "a.b.Recorder/OpenSession")
    clock.now = NOON + 13 * HOUR
    journal.touch("host1", EVERYTHING, "a.b.Journal/AppendAuditEvent")

    found = records(store)
    assert list(found.touches("host1", NOON + 60)) == [
        Touch(NOON, RUN, "AppendEvents"),
        Touch(NOON + 13 * HOUR, EVERYTHING, "AppendAuditEvent"),
        Touch(NOON, RUN, "OpenSession"),
    ]
    assert [each.method for each in found.touches("host1", NOON + HOUR)] == ["AppendAuditEvent"]
    assert not list(found.touches("host3", 0))


def test_two_journals_on_one_store_note_side_by_side(store: Store) -> None:
    one, two = records(store), records(store)
    one.touch("host1", RUN, "A")
    two.touch("host1", SESSION, "B")
    one.touch("host1", EVERYTHING, "C")
    assert [each.method for each in one.touches("host1", NOON)] == ["A", "B", "C"]


def test_a_fence_stands_for_every_process_until_it_is_taken_down(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_records, "LOOK_SECONDS", 0.0)
    one, two = records(store), records(store, service="recorder")
    assert one.fences().of_caller("host1") is None
    first = Fence("host1", "2023-11-14", "2023-11-15", "alice", frozenset({RUN}))
    second = Fence("host2", "2023-11-14", "2023-11-15", "alice", frozenset())
    for fence in (first, second, Fence("host1", "x", "y", "bob", frozenset({RUN, SESSION}))):
        one.put_up(fence)
    found = two.fences()
    assert found.of_caller("host2") == second
    standing = found.of_target(SESSION)
    assert standing is not None
    assert standing.by == "bob"
    assert two.take_down("host1") == standing
    assert one.fences().of_target(RUN) is None
    assert one.take_down("host1") is None
    assert one.fences().of_caller("host2") == second


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"fences": 1}', b'{"fences": [{"caller": "a"}]}', b"\xff"]
)
def test_records_that_cannot_be_read_let_nobody_through(store: Store, data: bytes) -> None:
    store.put("svc/access/quarantine.json", data)
    with pytest.raises(StoreFailed, match=r"quarantine\.json"):
        records(store).fences()
    store.put("svc/access/owners/run/run-1", data)
    with pytest.raises(StoreFailed, match="run-1"):
        records(store).owner(RUN)
