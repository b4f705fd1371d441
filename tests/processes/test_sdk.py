"""The client library as an orchestrator uses it, with threads and with asyncio."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bernstein_client import (
    AsyncClient,
    Client,
    Provider,
    connect,
    connect_async,
    errors,
)
from bernstein_client.connection import Services
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
TASKS, ROWS = 16, 60
# Every row of every producer, once and in its order.
ALL = {producer: list(range(ROWS)) for producer in range(TASKS)}


@pytest.fixture
def client(project: Any) -> Iterator[Client]:
    with connect(project.folder, environ=project.environ) as connected:
        yield connected


def rows_of(client: Client, run_id: str) -> dict[int, list[int]]:
    """By producer, in the order of the run, which has to verify."""
    run = client.run(run_id)
    assert run.verify().chain_consistent
    run.finish()
    found: dict[int, list[int]] = {}
    for row in run.watch():
        members: Any = row.members()
        found.setdefault(members["p"], []).append(members["n"])
    return found


def kill_journal(services: Services) -> None:
    status: Any = services.supervisor.ask({"do": "status"})
    pids = {each["service"]: each["pid"] for each in status["services"]}
    os.kill(pids["journal"], signal.SIGKILL)


def killing(services: Services, progress: Callable[[], int]) -> threading.Thread:
    """Kills the journal twice while rows are appended."""

    def kill() -> None:
        for share in (0.2, 0.6):
            while progress() < share * TASKS * ROWS:
                threading.Event().wait(0.002)
            kill_journal(services)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_threads_lose_and_double_nothing_when_the_journal_is_killed(
    client: Client, services: Services
) -> None:
    run = client.create_run()
    answered: list[int] = []

    def produce(producer: int) -> None:
        for n in range(ROWS):
            row = run.append("x", {"p": producer, "n": n})
            answered.append(row.first_index)

    killer = killing(services, lambda: len(answered))
    with ThreadPoolExecutor(TASKS) as pool:
        list(pool.map(produce, range(TASKS)))
    killer.join()

    assert sorted(answered) == list(range(TASKS * ROWS))
    assert rows_of(client, run.run_id) == ALL


def test_tasks_lose_and_double_nothing_when_the_journal_is_killed(
    project: Any, client: Client, services: Services
) -> None:
    answered: list[int] = []

    async def work() -> str:
        async with connect_async(project.folder, environ=project.environ) as opened:
            run = await opened.create_run()

            async def produce(producer: int) -> None:
                for n in range(ROWS):
                    row = await run.append("x", {"p": producer, "n": n})
                    answered.append(row.first_index)

            killer = killing(services, lambda: len(answered))
            await asyncio.gather(*map(produce, range(TASKS)))
            killer.join()
            return run.run_id

    run_id = asyncio.run(work())
    assert sorted(answered) == list(range(TASKS * ROWS))
    assert rows_of(client, run_id) == ALL


def test_appends_may_be_cancelled_at_any_time(project: Any, client: Client) -> None:
    """Whoever is told nothing finds all of its rows or none, and the others lose nothing."""

    async def work() -> tuple[str, set[int], set[int]]:
        kept, cancelled = set(), set()
        async with connect_async(project.folder, environ=project.environ) as opened:
            run = await opened.create_run()

            async def produce(number: int) -> None:
                await run.append_many([("x", {"p": number, "n": n}) for n in range(3)])
                kept.add(number)

            for turn in range(20):
                tasks = {n: asyncio.create_task(produce(n)) for n in range(turn * 8, turn * 8 + 8)}
                for pause in range(turn % 5):
                    await asyncio.sleep(0.0005 * pause)
                for number in list(tasks)[::2]:
                    if tasks[number].cancel():
                        cancelled.add(number)
                await asyncio.wait(tasks.values())
            return run.run_id, kept, cancelled

    run_id, kept, cancelled = asyncio.run(work())
    found = rows_of(client, run_id)
    assert all(rows == [0, 1, 2] for rows in found.values())
    assert kept <= found.keys() <= kept | cancelled
    assert cancelled - kept


def test_whoever_waits_in_a_full_line_goes_on(project: Any) -> None:
    """More than the line holds: the rest waits before it stands there, and all of it lands."""
    text = "x" * 900_000

    async def work() -> int:
        async with connect_async(project.folder, environ=project.environ) as opened:
            run = await opened.create_run()
            await asyncio.gather(*(run.append("x", {"n": n, "text": text}) for n in range(30)))
            return (await run.info()).row_count

    assert asyncio.run(work()) == 30


def test_many_events_go_in_pages(project: Any, client: Client) -> None:
    many = [("x", {"p": 0, "n": n}) for n in range(2500)]

    async def work(opened: AsyncClient) -> str:
        async with opened:
            run = await opened.create_run()
            assert (await run.append_many(many)).row_count == 2500
            return run.run_id

    run = client.create_run()
    appended = run.append_many(iter(many))
    assert (appended.first_index, appended.row_count) == (0, 2500)
    run_id = asyncio.run(work(connect_async(project.folder, environ=project.environ)))
    assert rows_of(client, run.run_id) == rows_of(client, run_id) == {0: list(range(2500))}


# --- an orchestrator's run, both ways -----------------------------------------------------------


@pytest.fixture
def keyed(project: Any, tmp_path: Path) -> dict[str, str]:
    """The environment of a project whose signer has a key for receipts."""
    key = tmp_path / "receipt.pem"
    key.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    key.chmod(0o600)
    return {**project.environ, "BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE": str(key)}


def record(client: Client, model: str, replay_of: str = "") -> tuple[str, list[str], bytes]:
    receipt = bytearray()
    run = client.create_run(replay_of=replay_of)
    run.append("run_started", {"by": "us"})
    with run.calls([Provider("openai", model, "unused")]) as calls:
        texts = [
            calls.ask("draft", model="scripted-small", provider="openai", lane=lane).text
            for lane in ("a", "b", "a")
        ]
    run.finish()
    built = run.receipt(receipt.extend)
    assert built.run_id == run.run_id
    return run.run_id, texts, bytes(receipt)


async def record_async(
    client: AsyncClient, model: str, replay_of: str = ""
) -> tuple[str, list[str], bytes]:
    receipt = bytearray()
    run = await client.create_run(replay_of=replay_of)
    await run.append("run_started", {"by": "us"})
    async with await run.calls([Provider("openai", model, "unused")]) as calls:
        texts = [
            (await calls.ask("draft", model="scripted-small", provider="openai", lane=lane)).text
            for lane in ("a", "b", "a")
        ]
    await run.finish()
    built = await run.receipt(receipt.extend)
    assert built.run_id == run.run_id
    return run.run_id, texts, bytes(receipt)


def test_both_ways_record_replay_finish_and_get_a_receipt(
    project: Any, keyed: dict[str, str]
) -> None:
    """What one recorded the other replays, without a model, to the same head."""

    async def first(model: str) -> tuple[str, list[str], bytes]:
        async with connect_async(project.folder, environ=keyed) as client:
            return await record_async(client, model)

    async def again(run_id: str) -> tuple[str, list[str], bytes]:
        async with connect_async(project.folder, environ=keyed) as client:
            return await record_async(client, "http://127.0.0.1:9", run_id)

    with ModelServer() as server, connect(project.folder, environ=keyed) as client:
        by_task = asyncio.run(first(server.base_url))
        by_thread = record(client, server.base_url)
    assert server.calls == 6
    with connect(project.folder, environ=keyed) as client:
        assert record(client, "http://127.0.0.1:9", by_task[0])[1] == by_task[1]
        assert client.run("latest").info().replay
    assert asyncio.run(again(by_thread[0]))[1] == by_thread[1]
    for _, _, receipt in (by_task, by_thread):
        assert json.loads(receipt)


def test_a_recording_that_was_changed_is_not_replayed(project: Any, client: Client) -> None:
    with ModelServer() as server:
        run = client.create_run()
        with run.calls([Provider("openai", server.base_url, "unused")]) as calls:
            calls.ask("draft", model="m", provider="openai", lane="a")
    stored = next(project.sdd.rglob("llm_calls.jsonl"))
    stored.write_bytes(stored.read_bytes() * 2)
    with pytest.raises(errors.RecordingChanged):
        client.create_run(replay_of=run.run_id).calls()


def test_a_watcher_sees_each_row_once_across_a_restart(
    project: Any, client: Client, services: Services
) -> None:
    run = client.create_run()
    run.append("x", {"n": 0})
    seen: list[int] = []

    async def watch() -> None:
        async with connect_async(project.folder, environ=project.environ) as opened:
            async for row in (await opened.run(run.run_id)).watch():
                assert row.members()["n"] == row.index
                seen.append(row.index)

    def produce() -> None:
        for n in range(1, 40):
            run.append("x", {"n": n})
            if n == 20:
                kill_journal(services)
        run.finish()

    with ThreadPoolExecutor(2) as pool:
        watching, producing = pool.submit(asyncio.run, watch()), pool.submit(produce)
        producing.result()
        watching.result(timeout=30)
    assert seen == list(range(40))


# --- as others see it ---------------------------------------------------------------------------

PROGRAM = """
import asyncio
from bernstein_client import AppendResult, Client, Provider, connect, connect_async, errors


def record(client: Client) -> str:
    run = client.create_run(metadata={"plan": "a", "tasks": 3})
    row: AppendResult = run.append("task_claimed", {"task": "t1"})
    for each in run.watch(row.first_index):
        print(each.index, each.members()["event"])
    with run.calls([Provider("openai", "", "k")]) as calls:
        text: str = calls.ask("p", model="m", provider="openai", lane="a").text
    return text + run.finish().head_hash_hex


async def main() -> None:
    async with connect_async(".") as client:
        run = await client.create_run()
        reveal_type(await run.append("x", {}))
        reveal_type((await run.receipt()).key_id)
        try:
            run.append("x", {})
        except errors.RunSealed as error:
            print(error.message)


with connect(".") as opened:
    reveal_type(opened.run("latest").verify())
    opened.run(7)
"""


def test_a_program_of_others_is_checked_against_its_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.split(": ", 1)[1] for line in done.stdout.splitlines()[:-1]]
    assert told == [
        'note: Revealed type is "bernstein_client.append_line.AppendResult"',
        'note: Revealed type is "str"',
        'error: Value of type "Coroutine[Any, Any, AppendResult]" must be used  [unused-coroutine]',
        "note: Are you missing an await?",
        'note: Revealed type is "bernstein_client.values.Verification"',
        (
            'error: Argument 1 to "run" of "Client" has incompatible type "int"; expected "str"'
            "  [arg-type]"
        ),
    ]


def test_importing_the_library_loads_no_grpc() -> None:
    program = (
        "import sys, bernstein_client as b;"
        "print([m for m in ('grpc', 'google.protobuf', 'asyncio') if m in sys.modules]);"
        "print([name for name in b.__all__ if getattr(b, name) is None])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["[]", "[]", ""]


# --- the page and the example -------------------------------------------------------------------

PAGE = (ROOT / "docs" / "sdk.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
EXAMPLE = ROOT / "examples" / "orchestrator" / "orchestrator.py"


def ran(project: Any, program: Path, model: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, program, *arguments],
        cwd=project.folder,
        env={**project.environ, "OPENAI_BASE_URL": model, "OPENAI_API_KEY": "unused"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_programs_of_the_page_run(project: Any) -> None:
    program, told = project.folder / "program.py", []
    with ModelServer() as server:
        for text in PROGRAMS:
            program.write_text(text)
            told.append(ran(project, program, server.base_url))
        assert server.calls == 2
    first, second, third = told
    assert first.startswith("4 ")
    assert second == "True\n"
    assert third == "True\nREPLAY_MISS\n"


def test_the_example_records_and_replays(project: Any) -> None:
    with ModelServer() as server:
        recorded = ran(project, EXAMPLE, server.base_url)
    run_id = recorded.rsplit("run ", 1)[1].split(":", 1)[0]
    replayed = ran(project, EXAMPLE, "http://127.0.0.1:9", run_id)
    assert recorded.rsplit("\nrun ", 1)[0] == replayed.rsplit("\nrun ", 1)[0]


def test_page_and_example_are_strictly_typed(tmp_path: Path) -> None:
    paths = [tmp_path / f"page_{number}.py" for number in range(len(PROGRAMS))]
    for path, text in zip(paths, PROGRAMS, strict=True):
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *paths, EXAMPLE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
