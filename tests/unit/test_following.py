"""Following a source: what is looked at when, what is told, and what a run's end leads to."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.direct_project import DirectProject

from bernstein_formats import paths
from bernstein_formats.errors import LedgerRefused, Unavailable
from bernstein_formats.event_journal import START, ChainHead, next_row
from bernstein_importer.following import (
    END_SECONDS,
    GLANCES_MAX,
    REST_SECONDS,
    ROUND_SECONDS,
    Following,
)
from bernstein_importer.importer import Importer
from bernstein_importer.outcome import Outcome, Status
from bernstein_importer.source import Source
from bernstein_runtime.clock import FixedClock

LONG_AGO = 1_000_000_000.0


class Peer:
    """Writes runs as the peer does."""

    def __init__(self, sdd: Path) -> None:
        self.sdd = sdd
        self._heads: dict[str, ChainHead] = {}

    def append(self, run_id: str, *events: str) -> None:
        path = self.sdd / paths.journal_path(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        head = self._heads.get(run_id, START)
        with path.open("ab") as file:
            for event in events:
                line, head = next_row(head, event, b"{}", 1.0, 0.0)
                file.write(line + b"\n")
        self._heads[run_id] = head

    def bytes_of(self, run_id: str) -> bytes:
        return (self.sdd / paths.journal_path(run_id)).read_bytes()


@dataclass
class World:
    """A source that is followed by hand, look by look."""

    peer: Peer
    project: DirectProject
    clock: FixedClock
    following: Following
    remarks: list[str]
    stop: threading.Event

    def taken(self, run_id: str) -> bytes:
        return self.project.stored(paths.journal_path(run_id))

    def is_sealed(self, run_id: str) -> bool:
        return bool(self.project.stored(paths.seal_path(run_id)))

    def look(self, seconds: float = 0.5) -> list[Outcome]:
        self.clock.monotonic += seconds
        return list(self.following.look_once())

    def statuses(self, seconds: float = 0.5) -> list[tuple[str, str]]:
        return [(each.run_id, each.status.value) for each in self.look(seconds)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    source = tmp_path.resolve() / "peer"
    (source / "runs").mkdir(parents=True)
    project, clock, stop = DirectProject(tmp_path / "ours"), FixedClock(), threading.Event()
    # Files of the test are new by this clock, unless it says otherwise.
    clock.now = LONG_AGO
    importer = Importer(Source(source), project)
    remarks: list[str] = []
    following = Following(importer, stop, clock, remarks.append)
    return World(Peer(source), project, clock, following, remarks, stop)


def test_rows_are_taken_as_they_come_and_each_change_is_told_once(world: World) -> None:
    world.peer.append("r1", "run_started")
    assert world.statuses() == [("r1", "new")]
    assert world.statuses() == []
    world.peer.append("r1", "x", "y")
    (outcome,) = world.look()
    assert (outcome.status, outcome.rows) == (Status.EXTENDED, 3)
    assert world.taken("r1") == world.peer.bytes_of("r1")


def test_a_run_that_says_it_has_ended_is_sealed_once_nobody_writes_any_more(world: World) -> None:
    world.peer.append("r1", "run_started", "run_completed")
    assert world.statuses() == [("r1", "new")]
    assert world.statuses(END_SECONDS - 1) == []
    world.peer.append("r1", "run_quiescence")
    assert world.statuses() == [("r1", "extended")]
    assert world.statuses(END_SECONDS - 1) == []
    assert world.statuses(1) == [("r1", "sealed")]
    assert world.statuses(2 * END_SECONDS) == []


def test_a_run_that_never_ended_is_not_sealed(world: World) -> None:
    world.peer.append("r1", "run_started")
    world.look()
    assert world.statuses(2 * REST_SECONDS) == []
    assert not world.is_sealed("r1")


def test_rows_behind_the_seal_are_a_finding_and_not_taken(world: World) -> None:
    world.peer.append("r1", "run_completed")
    world.look()
    world.look(REST_SECONDS)
    stored = world.taken("r1")
    world.peer.append("r1", "task_review_decision")
    found = [each for _ in range(200) for each in world.look()]
    assert [each.reason for each in found] == ["RUN_SEALED"]
    assert world.taken("r1") == stored


def test_a_seal_that_fails_is_told_once_and_tried_again_less_and_less_often(world: World) -> None:
    world.project.seal_fails = LedgerRefused("the signer says no")
    world.peer.append("r1", "run_completed")
    world.look()
    found = [each for _ in range(40) for each in world.look(REST_SECONDS)]
    assert [each.reason for each in found] == ["LEDGER_REFUSED"]
    world.project.seal_fails = None
    found = [each for _ in range(40) for each in world.look(REST_SECONDS)]
    assert [each.status.value for each in found] == ["sealed"]


def test_a_broken_chain_is_told_once_and_the_other_runs_go_on(world: World) -> None:
    world.peer.append("r1", "a", "b", "c")
    path = world.peer.sdd / paths.journal_path("r1")
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + third)
    world.peer.append("r2", "a")
    (broken, other) = world.look()
    assert (broken.reason, broken.line, broken.path) == ("CHAIN_BROKEN", 2, str(path))
    assert broken.expected_hash
    assert broken.actual_hash
    assert other.status is Status.NEW
    assert world.taken("r1") == first
    assert [each for _ in range(200) for each in world.look()] == []


def test_a_run_that_the_peer_removed_stays_and_that_is_told_once(world: World) -> None:
    world.peer.append("r1", "a")
    world.look()
    path = world.peer.sdd / paths.journal_path("r1")
    path.unlink()
    path.parent.rmdir()
    assert world.statuses() == [("r1", "gone")]
    assert world.statuses() == []
    assert world.taken("r1")


def test_services_that_are_away_are_told_once_and_nothing_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.peer.append("r1", "a")
    world.project.fails = Unavailable("the journal is away")
    waits: list[float] = []

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        if len(waits) == 9:
            world.project.fails = None
        return False

    monkeypatch.setattr(world.stop, "wait", wait)
    assert world.statuses() == [("r1", "new")]
    assert len(world.remarks) == 2
    assert world.remarks[0].startswith("the journal is away")
    assert max(waits) <= 31
    assert world.taken("r1") == world.peer.bytes_of("r1")


def test_what_rests_costs_no_call_and_is_looked_at_in_turn(world: World) -> None:
    world.clock.now = 4_000_000_000.0  # nobody has written for long
    for number in range(240):
        world.peer.append(f"r{number:03}", "a")
    assert len(world.look()) == 240
    calls = world.project.calls
    assert [each for _ in range(20) for each in world.look()] == []
    assert world.project.calls == calls
    world.peer.append("r123", "b")
    looks = int(ROUND_SECONDS / 0.5) + 1
    assert [each.run_id for _ in range(looks) for each in world.look()] == ["r123"]


def test_a_look_at_what_rests_is_bounded(world: World) -> None:
    world.clock.now = 4_000_000_000.0
    seen = glances(world.following)
    for number in range(40):
        world.peer.append(f"r{number}", "a")
    world.look()
    seen.clear()
    world.look()
    assert 1 <= len(seen) <= GLANCES_MAX
    assert len(seen) < 40


def glances(following: Following) -> list[object]:
    """The subjects that are glanced at from now on."""
    seen: list[object] = []
    looks: Callable[[Any], Any] = following._importer.looks

    def counted(subject: Any) -> Any:
        seen.append(subject)
        return looks(subject)

    following._importer.looks = counted  # type: ignore[method-assign]
    return seen


def test_a_rewritten_beginning_fences_the_run_until_it_is_put_back(world: World) -> None:
    world.peer.append("r1", "a", "b")
    world.look()
    world.look(REST_SECONDS)
    path = world.peer.sdd / paths.journal_path("r1")
    good, times = path.read_bytes(), path.stat()
    with path.open("r+b") as file:
        file.write(good[:5].upper() + b"X")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = list(until_quiet(world))
    assert [each.reason for each in found] == ["FOREIGN_WRITER"]
    assert world.taken("r1") == good
    path.write_bytes(good)
    world.peer.append("r1", "c")
    assert [each.status.value for each in until_quiet(world)] == ["extended"]
    assert world.taken("r1") == world.peer.bytes_of("r1")


def until_quiet(world: World) -> Iterator[Outcome]:
    """What is told in a whole round."""
    for _ in range(int(ROUND_SECONDS / 0.5) + 1):
        yield from world.look()


def test_hostile_folders_are_told_once_and_the_others_go_on(world: World) -> None:
    runs = world.peer.sdd / "runs"
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "journal.jsonl")
    (runs / "folder" / "journal.jsonl").mkdir(parents=True)
    (runs / "no run id").mkdir()
    (runs / "no run id" / "journal.jsonl").write_bytes(b"{}\n")
    (runs / os.fsdecode(b"\xff\x1b[2J")).mkdir()
    (runs / "leaves").symlink_to("/")
    (runs / "deep").mkdir()
    (runs / "deep" / "journal.jsonl").write_bytes(b"[" * 100_000 + b"\n" + b"9" * 5000 + b"\n")
    world.peer.append("r1", "a")
    told = {each.run_id: each for each in until_quiet(world)}
    assert told["r1"].status is Status.NEW
    failed = {name for name, each in told.items() if each.status is Status.FAILED}
    assert failed >= {"pipe", "folder", "no run id", "leaves"}
    assert {each.reason for each in told.values()} <= {"", "INVALID_INPUT", "STORE_FAILED"}
    assert world.taken("deep") == b""


def test_a_source_that_cannot_be_listed_is_told_once_and_what_is_known_goes_on(
    world: World,
) -> None:
    world.peer.append("r1", "a")
    world.look()
    sessions = world.peer.sdd / "runtime" / "journal"
    sessions.parent.mkdir()
    sessions.write_bytes(b"no folder")
    world.peer.append("r1", "b")
    assert world.statuses() == [("r1", "extended")]
    world.look()
    assert len(world.remarks) == 1
    assert str(sessions) in world.remarks[0]
    sessions.unlink()
    world.peer.append("r2", "a")
    assert world.statuses() == [("r2", "new")]
