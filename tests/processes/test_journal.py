"""The journal as a real process: what it answers is durable, once and in order."""

import json
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.connection import Services
from bernstein_formats.errors import (
    ForeignWriter,
    HeadMoved,
    InvalidInput,
    JournalError,
    LedgerRefused,
    LimitExceeded,
    RunExists,
    RunNotFound,
    RunSealed,
)
from bernstein_runtime.channel import open_channel
from bernstein_runtime.status import error_from

pytestmark = pytest.mark.processes


def rows_of(services: Services, run_id: str) -> list[dict[str, Any]]:
    text = b"".join(services.journal.read_journal(run_id))
    return [json.loads(line) for line in text.splitlines()]


def pid_of(services: Services, name: str) -> int:
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    pids: dict[str, int] = {each["service"]: each["pid"] for each in status["services"]}
    return pids[name]


def test_events_become_rows_that_verify(services: Services) -> None:
    run_id = services.journal.create_run(metadata=b'{"run_id": "x"}')

    first = services.journal.append(run_id, "run_started", {"run_id": run_id, "größe": 1.0})
    both = services.journal.append_many(run_id, [("tick_start", {"tick": 1}), ("x", {})])
    found = services.journal.verify_run(run_id)

    assert (first.first_index, both.first_index, both.row_count) == (0, 1, 3)
    assert [row["event"] for row in rows_of(services, run_id)] == ["run_started", "tick_start", "x"]
    assert found.chain_consistent
    assert found.head_hash == both.head_hash_hex
    assert (found.coverage, found.identity, found.row_count) == ("complete", "unverifiable", 3)


def test_many_callers_append_to_one_run_and_nothing_is_lost_or_doubled(services: Services) -> None:
    run_id = services.journal.create_run()

    def produce(producer: int) -> list[int]:
        return [
            services.journal.append(run_id, "x", {"p": producer, "n": n}).first_index
            for n in range(40)
        ]

    with ThreadPoolExecutor(16) as pool:
        answered = [index for found in pool.map(produce, range(16)) for index in found]

    rows = rows_of(services, run_id)
    assert sorted(answered) == list(range(640))
    assert sorted((row["p"], row["n"]) for row in rows) == [
        (p, n) for p in range(16) for n in range(40)
    ]
    assert services.journal.verify_run(run_id).chain_consistent


def test_a_killed_journal_loses_nothing_that_was_answered(services: Services) -> None:
    run_id = services.journal.create_run()
    answered: list[int] = []
    stop = threading.Event()

    def produce(producer: int) -> None:
        number = 0
        while not stop.is_set():
            services.journal.append(run_id, "x", {"id": f"{producer}-{number}"})
            answered.append(producer)
            number += 1

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(produce, producer) for producer in range(4)]
        for _ in range(3):
            before = len(answered)
            while len(answered) < before + 20:
                time.sleep(0.001)
            os.kill(pid_of(services, "journal"), signal.SIGKILL)
        before = len(answered)
        while len(answered) < before + 20:
            time.sleep(0.001)
        stop.set()
        for future in running:
            future.result()

    ids = [row["id"] for row in rows_of(services, run_id)]
    assert len(ids) == len(set(ids)) == len(answered)
    assert services.journal.verify_run(run_id).chain_consistent


def test_the_same_request_lands_once_across_a_restart(services: Services) -> None:
    run_id = services.journal.create_run()
    request = journal_pb2.AppendEventsRequest(
        run_id=run_id,
        request_id="mine-1",
        events=[journal_pb2.NewEvent(event="x", payload_json=b'{"n": 1}')],
    )

    def send() -> journal_pb2.AppendEventsResponse:
        services.supervisor.ensure("journal")
        with open_channel(services.places.socket("journal")) as channel:
            stub = journal_pb2_grpc.JournalServiceStub(channel)
            return stub.AppendEvents(request, timeout=10)

    first, second = send(), send()
    os.kill(pid_of(services, "journal"), signal.SIGKILL)
    services.journal.append(run_id, "y", {})
    third = send()

    assert first == second == third
    assert [row["event"] for row in rows_of(services, run_id)] == ["x", "y"]


def test_an_unexpected_head_is_refused(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    request = journal_pb2.AppendEventsRequest(
        run_id=run_id,
        request_id="r",
        events=[journal_pb2.NewEvent(event="x", payload_json=b"{}")],
        expected_head_hash=b"",
    )
    with (
        open_channel(services.places.socket("journal")) as channel,
        pytest.raises(grpc.RpcError) as failure,
    ):
        journal_pb2_grpc.JournalServiceStub(channel).AppendEvents(request)

    assert failure.value.code() is grpc.StatusCode.ABORTED
    assert isinstance(error_from(failure.value), HeadMoved)


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("x", b"[]"),
        ("x", b"{"),
        ("x", b'{"event_hash": "0"}'),
        ("x", b'{"n": NaN}'),
        ("x", b'{"n": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
        ("x", b'{"n": ' + b"9" * 5000 + b"}"),
        ("x", b"\xff"),
        ("", b"{}"),
    ],
)
def test_a_bad_event_is_refused_and_leaves_no_trace(
    services: Services, event: str, payload: bytes
) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    request = journal_pb2.AppendEventsRequest(
        run_id=run_id,
        request_id="r",
        events=[
            journal_pb2.NewEvent(event="fine", payload_json=b"{}"),
            journal_pb2.NewEvent(event=event, payload_json=payload),
        ],
    )
    with (
        open_channel(services.places.socket("journal")) as channel,
        pytest.raises(grpc.RpcError) as failure,
    ):
        journal_pb2_grpc.JournalServiceStub(channel).AppendEvents(request)

    assert isinstance(error_from(failure.value), InvalidInput)
    assert len(rows_of(services, run_id)) == 1


def test_one_bad_event_does_not_fail_its_neighbours_in_a_message(services: Services) -> None:
    run_id = services.journal.create_run()

    def append(number: int) -> str:
        payload = {"index": number} if number == 7 else {"n": number}
        try:
            services.journal.append(run_id, "x", payload)
        except InvalidInput as error:
            return error.reason
        return "stored"

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(append, range(16)))

    assert outcomes == ["INVALID_INPUT" if n == 7 else "stored" for n in range(16)]
    assert sorted(row["n"] for row in rows_of(services, run_id)) == [n for n in range(16) if n != 7]


def test_limits_are_refusals_with_the_size_in_the_text(services: Services) -> None:
    run_id = services.journal.create_run()

    with pytest.raises(LimitExceeded, match="1001 events"):
        services.journal.append_many(run_id, [("x", {})] * 1001)
    with pytest.raises(InvalidInput, match="16777216"):
        services.journal.append(run_id, "x", {"text": "a" * 17_000_000})
    assert services.journal.append(run_id, "x", {"text": "a" * 2_000_000}).first_index == 0


def test_a_run_is_started_once(services: Services, project) -> None:
    services.journal.create_run("r1")

    with pytest.raises(RunExists):
        services.journal.create_run("r1")
    for bad in ("../../x", "a b", "x" * 65, "r\n", "latest"):
        with pytest.raises(InvalidInput):
            services.journal.create_run(bad)
    assert sorted(path.name for path in (project.sdd / "runs").iterdir()) == ["r1"]


def test_an_unknown_run_is_not_made_by_asking_for_it(services: Services, project) -> None:
    for ask in (
        lambda: services.journal.append("nope", "x", {}),
        lambda: services.journal.verify_run("nope"),
        lambda: services.journal.get_run("nope"),
        lambda: services.journal.finish_run("nope"),
        lambda: list(services.journal.read_journal("nope")),
        lambda: services.journal.get_run("latest"),
    ):
        with pytest.raises(RunNotFound):
            ask()
    assert not (project.sdd / "runs").exists()


def test_a_journal_that_cannot_be_continued_is_refused(services: Services, project) -> None:
    run_id = services.journal.create_run()
    journal = project.sdd / "runs" / run_id / "journal.jsonl"
    journal.write_bytes(b'{"event": "torn')

    with pytest.raises(JournalError, match="cannot be continued"):
        services.journal.append(run_id, "x", {})
    assert journal.read_bytes() == b'{"event": "torn'


def test_a_run_folder_removed_under_us_is_reported(services: Services, project) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    journal = project.sdd / "runs" / run_id / "journal.jsonl"
    shutil.rmtree(journal.parent)

    with pytest.raises(ForeignWriter, match="removed by another program"):
        services.journal.append(run_id, "x", {})
    with pytest.raises(RunNotFound):
        services.journal.append(run_id, "x", {})
    assert not journal.parent.exists()


def test_an_edited_row_is_named(services: Services, project) -> None:
    run_id = services.journal.create_run()
    for number in range(3):
        services.journal.append(run_id, "x", {"n": number})
    journal = project.sdd / "runs" / run_id / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"n": 1', b'"n": 9'))

    found = services.journal.verify_run(run_id)

    assert (found.chain_consistent, found.divergent_index, found.divergent_line) == (False, 1, 2)
    report = json.loads((journal.parent / "divergence_report.json").read_text())
    assert report["step_index"] == 1


def test_a_finished_run_is_sealed_and_takes_no_more_rows(services: Services, project) -> None:
    run_id = services.journal.create_run()
    last = services.journal.append(run_id, "run_completed", {})

    finished = services.journal.finish_run(run_id)
    again = services.journal.finish_run(run_id)

    # That there is no key for the spine is told once, not with every run.
    assert again == replace(finished, notes=())
    assert (finished.head_hash_hex, finished.row_count) == (last.head_hash_hex, 1)
    assert services.journal.verify_run(run_id).identity == "verified"
    with pytest.raises(RunSealed):
        services.journal.append(run_id, "x", {})


def test_a_row_cut_off_a_sealed_run_is_a_mismatch(services: Services, project) -> None:
    run_id = services.journal.create_run()
    services.journal.append_many(run_id, [("a", {}), ("b", {})])
    services.journal.finish_run(run_id)
    journal = project.sdd / "runs" / run_id / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])

    found = services.journal.verify_run(run_id)

    assert found.chain_consistent
    assert (found.identity, found.sealed_row_count) == ("mismatched", 2)


def test_imported_bytes_are_stored_verbatim_and_once(services: Services, project) -> None:
    run_id = services.journal.create_run("imported")
    data = b'{"odd":   1.50}\r\n'

    assert services.journal.append_rows(run_id, "journal", 0, data) == len(data)
    assert services.journal.append_rows(run_id, "journal", 0, data) == len(data)
    with pytest.raises(HeadMoved):
        services.journal.append_rows(run_id, "journal", 3, b"x" * 40)
    assert (project.sdd / "runs" / run_id / "journal.jsonl").read_bytes() == data


def test_latest_is_the_newest_orchestrator_run(services: Services) -> None:
    for run_id, started in (("b-run", 30), ("a-run", 40), ("c-run", 20), ("task-z", 99)):
        metadata = json.dumps({"started_at": started}).encode()
        services.journal.create_run(run_id, metadata=metadata)
        services.journal.append(run_id, "x", {})

    assert services.journal.get_run("latest").run_id == "a-run"
    assert [run.run_id for run in services.journal.list_runs()] == [
        "task-z", "a-run", "b-run", "c-run",
    ]  # fmt: skip


def test_two_runs_are_compared(services: Services) -> None:
    for run_id, payload in (("a", {"n": 1}), ("b", {"n": 2})):
        services.journal.create_run(run_id)
        services.journal.append_many(run_id, [("same", {}), ("x", payload)])

    found = services.journal.diff_runs("a", "b")

    assert (found.diverged, found.index, found.reason_code) == (True, 1, "response_mismatch")
    assert not services.journal.diff_runs("a", "a").diverged


def test_health_and_reflection_answer(services: Services) -> None:
    services.supervisor.ensure("journal")
    with open_channel(services.places.socket("journal")) as channel:
        # Their stubs declare no methods.
        asked: Any = health_pb2_grpc.HealthStub(channel)
        health = asked.Check(health_pb2.HealthCheckRequest())
        reflected: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        listed = reflected.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        names = {each.name for each in next(listed).list_services_response.service}

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert "bernstein_api.journal.v1.JournalService" in names


def test_sockets_and_state_are_private(services: Services, project) -> None:
    services.supervisor.ensure("journal")

    for path in (services.places.runtime_dir, services.places.socket("journal")):
        assert path.stat().st_mode & 0o077 == 0


def test_the_logs_hold_no_payload(services: Services, project) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {"text": "a-secret-payload"})

    for log in Path(services.places.logs_dir).glob("*.log"):
        assert b"a-secret-payload" not in log.read_bytes()


def test_a_copied_project_is_sealed_by_a_ledger_of_its_own(
    services: Services, project: Any, tmp_path: Path
) -> None:
    first = services.journal.create_run()
    services.journal.append(first, "x", {})
    services.journal.finish_run(first)
    shutil.copytree(project.folder, tmp_path / "copy")

    with Services(tmp_path / "copy" / ".sdd", project.environ) as copied:
        second = copied.journal.create_run()
        copied.journal.append(second, "x", {})
        copied.journal.finish_run(second)
        found = copied.journal.verify_run(second)
        copied.supervisor.ask({"do": "stop"})

    assert found.identity == "verified"


def test_a_lost_ledger_is_named_before_a_run_is_begun_and_can_be_begun_anew(
    services: Services, project: Any
) -> None:
    first = services.journal.create_run()
    services.journal.append(first, "x", {})
    services.journal.finish_run(first)
    services.supervisor.ask({"do": "stop"})
    shutil.rmtree(services.places.secrets_dir)

    with pytest.raises(LedgerRefused, match="--new-ledger"):
        services.journal.create_run()
    services.journal.begin_ledger()
    second = services.journal.create_run()
    services.journal.append(second, "x", {})

    assert services.journal.finish_run(second).row_count == 1
