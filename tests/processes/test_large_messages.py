"""What does not fit into one message of 4 MiB (field case F21): it goes in parts, or is refused by
name before anything is done."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client import Event, connect, connect_async, errors
from bernstein_client.connection import Services
from bernstein_client.steps import Step
from bernstein_runtime.status import error_from

pytestmark = pytest.mark.processes
MIB = 1024 * 1024


def test_large_events_land_one_by_one(services: Services) -> None:
    run_id = services.journal.create_run()
    events: list[Event] = [("x", {"text": "x" * (5 * MIB // 2), "n": n}) for n in range(4)]
    assert services.journal.append_pages(run_id, events).row_count == 4
    assert sum(map(len, services.journal.read_journal(run_id))) > 10 * MIB
    watched = [row for item in _watch(services, run_id) for row in item]
    assert len(watched) == 4


def _watch(services: Services, run_id: str) -> list[tuple[bytes, ...]]:
    services.journal.finish_run(run_id)
    return [getattr(item, "lines", ()) for item in services.journal.watch_rows(run_id)]


@pytest.mark.parametrize("size", [5 * MIB, 15 * MIB])
def test_a_row_of_more_than_a_message_lands_and_is_watched_in_parts(
    project: Any, size: int
) -> None:
    text = "x" * size

    async def append_and_watch() -> list[Any]:
        async with connect_async(project.folder, environ=project.environ) as opened:
            run = await opened.create_run()
            await asyncio.gather(*(run.append("x", {"n": n}) for n in range(5)))
            await run.append("long", {"text": text})
            await run.append("x", {})
            await run.finish()
            return [row.members() async for row in run.watch()]

    with connect(project.folder, environ=project.environ) as client:
        run = client.create_run()
        run.append_many([("x", {}), ("long", {"text": text}), ("x", {})])
        run.finish()
        rows = [row.members() for row in run.watch()]
        assert run.verify().is_clean
        assert [len(str(row)) > size for row in rows] == [False, True, False]
        assert rows[1]["text"] == text
    watched = asyncio.run(append_and_watch())
    assert [row["event"] for row in watched] == ["x"] * 5 + ["long", "x"]
    assert watched[5]["text"] == text


def test_a_viewer_that_takes_no_parts_is_told_so(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "long", {"text": "x" * (5 * MIB)})
    stub = journal_pb2_grpc.JournalServiceStub(services.connector.open("journal"))
    with pytest.raises(grpc.RpcError) as failure:
        list(stub.WatchRows(journal_pb2.WatchRowsRequest(run_id=run_id)))
    assert isinstance(error_from(failure.value), errors.LimitExceeded)


@pytest.mark.parametrize("size", [16 * MIB, 20 * MIB])
def test_an_event_over_the_limit_is_refused_and_those_beside_it_are_not(
    services: Services, size: int
) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    with pytest.raises(errors.InvalidInput, match=r"\d{7}"):
        services.journal.append(run_id, "x", {"text": "x" * size})
    assert services.journal.append(run_id, "x", {}).row_count == 2


def test_metadata_over_the_limit_makes_no_run(services: Services) -> None:
    for size in (5 * MIB, 2 * MIB):
        with pytest.raises(errors.InvalidInput):
            services.journal.create_run("r1", b'"' + b"x" * size + b'"', b'"' + b"x" * size + b'"')
    assert list(services.journal.list_runs()) == []


def test_a_long_list_of_runs_comes_in_pages(services: Services) -> None:
    metadata = json.dumps({"text": "x" * (MIB - 100)}).encode()
    made = []
    for _ in range(9):
        made.append(services.journal.create_run(metadata=metadata))
        services.journal.append(made[-1], "x", {})
    assert sorted(run.run_id for run in services.journal.list_runs()) == sorted(made)


def test_rows_in_which_two_runs_differ_are_left_out_where_they_are_too_large(
    services: Services,
) -> None:
    runs = [services.journal.create_run() for _ in range(2)]
    for run_id, text in zip(runs, "xy", strict=True):
        services.journal.append(run_id, "x", {"text": text * (5 * MIB // 2)})
    found = services.journal.diff_runs(*runs)
    assert found.diverged
    assert "more than an answer carries" in found.note


def test_a_large_state_and_a_large_receipt_come_in_parts(project: Any, tmp_path: Path) -> None:
    with connect(project.folder, environ=project.environ) as client:
        run = client.create_run()
        run.append_many([("x", {"text": "x" * MIB, "n": n}) for n in range(12)])
        run.finish()
        run_id, _ = client._services.journal.rebuild_state(run.run_id, 12)
        assert run_id == run.run_id
        assert run.verify().is_clean


def test_large_steps_land_one_by_one_and_are_read_in_parts(services: Services) -> None:
    steps = [Step("0" * 64, prompt="x" * (7 * MIB // 4)) for _ in range(3)]
    services.steps.start("a1", steps[:1])
    for step in steps[1:]:
        services.steps.append("a1", [step])
    with pytest.raises(errors.InvalidInput):
        services.steps.append("a1", steps)
    assert sum(map(len, services.steps.read("a1"))) > 5 * MIB
