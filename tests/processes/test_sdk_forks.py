"""Clients in processes that fork() made (field case F20): they work or refuse, and never hang."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bernstein_client import Client, connect

pytestmark = pytest.mark.processes
ROWS, SECONDS = 20, 60

# What the programs below have in common: a project, a run, and what a worker does.
BEGIN = """
import asyncio, multiprocessing, os, sys, threading
from bernstein_client import connect, connect_async, errors

FOLDER, RUN = sys.argv[1:]
client = connect(FOLDER)
run = client.run(RUN)

def work(number):
    for n in range(ROWS):
        run.append("x", {"p": number, "n": n})

def forked(job, *arguments):
    child = os.fork()
    if child:
        return child
    try:
        job(*arguments)
    except errors.BernsteinError as error:
        print(error.reason, flush=True)
        os._exit(7)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)

def ended(*children):
    print(sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
""".replace("ROWS", str(ROWS))

FORKED = """
work(0)
ended(*[forked(work, number) for number in range(1, 5)])
work(5)
"""

# As a server that forks its workers after it was loaded: they fork again, and each has threads.
PREFORK = """
def serve(number):
    threads = [threading.Thread(target=work, args=(4 * number + n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

work(0)
ended(*[forked(serve, number) for number in range(1, 4)])
"""

BUSY = """
stop = threading.Event()
def busy():
    while not stop.is_set():
        run.append("busy", {"p": -1, "n": 0})

def watching():
    for _ in run.watch():
        pass

threads = [threading.Thread(target=busy) for _ in range(4)]
for each in threads:
    each.start()
threading.Thread(target=watching, daemon=True).start()
work(0)
ended(*[forked(work, number) for number in range(1, 13)])
stop.set()
for each in threads:
    each.join()
work(13)
print("parent goes on", flush=True)
os._exit(0)
"""

POOL = """
if __name__ == "__main__":
    work(0)
    with multiprocessing.get_context("METHOD").Pool(3) as pool:
        pool.map(work, range(1, 7))
"""

# A loop that has a client open: gRPC cannot begin anew in a child.
LOOP = """
async def main():
    async with connect_async(FOLDER) as opened:
        mine = await opened.run(RUN)
        await mine.append("x", {"p": 0, "n": 0})
        ended(forked(lambda: asyncio.run(again(mine))), forked(work, 1), forked(anew))
        await mine.append("x", {"p": 0, "n": 1})

async def again(mine):
    await mine.append("x", {"p": 2, "n": 0})

def anew():
    async def open_and_append():
        async with connect_async(FOLDER) as opened:
            await (await opened.run(RUN)).append("x", {"p": 3, "n": 0})
    asyncio.run(open_and_append())

asyncio.run(main())
# Once it is closed they can.
ended(forked(work, 4), forked(anew))
"""


@pytest.fixture
def client(project: Any) -> Iterator[Client]:
    with connect(project.folder, environ=project.environ) as connected:
        yield connected


def told_by(project: Any, run_id: str, program: str, **environ: str) -> list[str]:
    """What a program prints; it is ended when it hangs, with all of its children."""
    path = project.folder / "program.py"
    path.write_text(BEGIN + program)
    with subprocess.Popen(
        [sys.executable, path, project.folder, run_id],
        env={**project.environ, "PYTHONWARNINGS": "ignore", "GRPC_VERBOSITY": "NONE", **environ},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        late = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        assert process.stdout is not None
        told = process.stdout.read().splitlines()
        assert process.wait() == 0
        late.cancel()
    return told


def appended(client: Client, run_id: str) -> dict[int, list[int]]:
    """The rows of each worker, in the order of the run."""
    found: dict[int, list[int]] = {}
    stored = Path(client.run(run_id).info().journal_path)
    for row in map(json.loads, stored.read_text().splitlines()):
        if row["event"] == "x":
            found.setdefault(row["p"], []).append(row["n"])
    return found


def started(client: Client) -> str:
    run = client.create_run()
    run.append("run_started", {})
    return run.run_id


def by(*producers: int) -> dict[int, list[int]]:
    return {producer: list(range(ROWS)) for producer in producers}


def test_children_append_with_the_client_of_their_parent(project: Any, client: Client) -> None:
    run_id = started(client)
    assert told_by(project, run_id, FORKED) == ["[0, 0, 0, 0]"]
    assert appended(client, run_id) == by(*range(6))


def test_workers_of_a_server_append_from_all_of_their_threads(project: Any, client: Client) -> None:
    run_id = started(client)
    assert told_by(project, run_id, PREFORK) == ["[0, 0, 0]"]
    assert appended(client, run_id) == by(0, *range(4, 16))


def test_a_fork_amid_appends_and_streams_harms_neither_side(project: Any, client: Client) -> None:
    run_id = started(client)
    assert told_by(project, run_id, BUSY) == [str([0] * 12), "parent goes on"]
    assert appended(client, run_id) == by(*range(14))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_pools_of_processes_append(project: Any, client: Client, method: str) -> None:
    run_id = started(client)
    assert told_by(project, run_id, POOL.replace("METHOD", method)) == []
    assert appended(client, run_id) == by(*range(7))


def test_where_grpc_may_not_be_forked_a_child_refuses_at_once(project: Any, client: Client) -> None:
    run_id = started(client)
    told = told_by(project, run_id, FORKED, GRPC_ENABLE_FORK_SUPPORT="0")
    assert told == ["CLIENT_FORKED"] * 4 + ["[7, 7, 7, 7]"]
    assert appended(client, run_id) == by(0, 5)


def test_while_a_loop_has_a_client_open_children_refuse_at_once(
    project: Any, client: Client
) -> None:
    run_id = started(client)
    told = told_by(project, run_id, LOOP)
    assert told == ["CLIENT_FORKED"] * 3 + ["[7, 7, 7]", "[0, 0]"]
    assert appended(client, run_id) == {0: [0, 1], 3: [0], **by(4)}
