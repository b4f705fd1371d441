"""Following a run through real services: rows as they are stored, across restarts, to the end."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows, WatchPlace
from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput, JournalError, RunNotFound, RunSealed
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.thread import ThreadStep, step_at

pytestmark = pytest.mark.processes

F07 = Path(__file__).parents[1] / "vectors/data/field/F07"


def steps(services: Services, run_id: str, start: int = 0) -> list[ThreadStep]:
    return [
        step_at(item.first_index + number, line)
        for item in services.journal.watch_rows(run_id, start)
        if isinstance(item, WatchedRows)
        for number, line in enumerate(item.lines)
    ]


def test_a_watcher_sees_each_row_once_in_order_until_the_seal(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "run_started", {})
    with ThreadPoolExecutor(3) as pool:
        watching = [pool.submit(steps, services, run_id, start) for start in (0, 0, 1)]
        for number in range(50):
            services.journal.append(run_id, "tick_start", {"tick": number})
        services.journal.finish_run(run_id)
        all_rows, same, later = (each.result(20) for each in watching)

    assert [step.index for step in all_rows] == list(range(51))
    assert same == all_rows
    assert later == all_rows[1:]


def test_a_watcher_is_told_where_it_stands(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append_many(run_id, [("a", {}), ("b", {})])
    services.journal.finish_run(run_id)

    items = list(services.journal.watch_rows("latest", 1))

    assert items[0] == WatchPlace(run_id, 1, is_sealed=True)
    assert isinstance(items[1], WatchedRows)
    assert items[2:] == [WatchPlace(run_id, 2, is_sealed=True)]


@pytest.mark.parametrize("start", [3, 1000])
def test_a_position_beyond_the_run_is_refused(services: Services, start: int) -> None:
    run_id = services.journal.create_run()
    services.journal.append_many(run_id, [("a", {}), ("b", {})])

    with pytest.raises(InvalidInput) as raised:
        list(services.journal.watch_rows(run_id, start))

    assert raised.value.metadata["row_count"] == "2"


def test_a_run_that_is_not_there_cannot_be_watched(services: Services) -> None:
    with pytest.raises(RunNotFound):
        list(services.journal.watch_rows("nowhere"))


def test_a_watcher_outlives_a_killed_journal(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "one", {})
    stream = services.journal.watch_rows(run_id)
    seen: list[int] = []
    first_row = threading.Event()

    def follow() -> None:
        for item in stream:
            if isinstance(item, WatchedRows):
                seen.extend(range(item.first_index, item.first_index + len(item.lines)))
                first_row.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert first_row.wait(10)
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    pid = next(each["pid"] for each in status["services"] if each["service"] == "journal")
    os.kill(pid, signal.SIGKILL)
    services.journal.append(run_id, "two", {})
    services.journal.finish_run(run_id)
    follower.join(20)

    assert not follower.is_alive()
    assert seen == [0, 1]


def test_services_that_are_told_to_stop_do_not_wait_for_watchers(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "one", {})
    stream = services.journal.watch_rows(run_id)
    next(stream)
    assert services.supervisor.ask({"do": "stop"}) == {"ok": True}


def torn_run(services: Services, tail: bytes) -> tuple[str, Path]:
    """A run that another program wrote and left damaged."""
    run_id = "torn-run"
    journal = services.places.sdd_dir / paths.journal_path(run_id)
    journal.parent.mkdir(parents=True)
    journal.write_bytes((F07 / "intact.jsonl").read_bytes() + tail)
    return run_id, journal


def test_a_torn_run_is_refused_repaired_and_gone_on_with(services: Services) -> None:
    run_id, journal = torn_run(services, b'{"ts": 1')
    with pytest.raises(JournalError):
        services.journal.append(run_id, "x", {})

    done = services.journal.repair_run(run_id)

    assert (done.repaired, done.removed_lines, done.row_count) == (True, (3,), 3)
    assert Path(done.kept_path).read_bytes() == b'{"ts": 1'
    assert services.journal.append(run_id, "x", {}).first_index == 3
    assert verify_journal([journal.read_bytes()]).intact


def test_a_sealed_run_is_not_appended_to_after_a_repair(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "one", {})
    services.journal.finish_run(run_id)
    journal = services.places.sdd_dir / paths.journal_path(run_id)
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"torn")
    assert services.journal.verify_run(run_id).coverage == "partial"

    assert services.journal.repair_run(run_id).repaired

    assert journal.read_bytes() == whole
    assert services.journal.verify_run(run_id).identity == "verified"
    with pytest.raises(RunSealed):
        services.journal.append(run_id, "two", {})


def test_old_runs_go_and_their_seals_stay(services: Services) -> None:
    made = []
    for _ in range(3):
        run_id = services.journal.create_run()
        services.journal.append(run_id, "one", {})
        services.journal.finish_run(run_id)
        made.append(run_id)
    open_run = services.journal.create_run()
    services.journal.append(open_run, "one", {})

    preview = services.journal.prune_runs(2, preview=True)
    pruned = services.journal.prune_runs(2, preview=False)

    assert preview == pruned
    assert (pruned.removed, pruned.left_count) == (tuple(made[:2]), 2)
    folder = services.places.sdd_dir / paths.run_folder(made[0])
    assert [path.name for path in folder.iterdir()] == ["seal.json"]
    assert {run.run_id for run in services.journal.list_runs()} == {made[2], open_run}
    with pytest.raises(RunNotFound):
        services.journal.get_run(made[0])
