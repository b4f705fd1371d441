"""Durable appends over gRPC against the peer's in-process ones, which are not synced at all."""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, cycle, islice
from statistics import quantiles
from typing import Any

from benchmarks.measuring import Figure, Setting
from benchmarks.project import PeerEnvironment, Project, fresh_project
from benchmarks.rows import std_events
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client import connect_async
from bernstein_client.connection import Services
from bernstein_runtime.channel import open_channel

PRODUCERS = 64
STREAMS = 8
PEER_ROWS = 15_000
SECONDS = 2.0

# Does one call and gives the number of rows that it made durable; the argument names the caller.
Call = Callable[[int], int]


def appends(setting: Setting, peer: PeerEnvironment) -> Iterator[Figure]:
    seconds = SECONDS / 2 if setting.quick else SECONDS
    with (
        fresh_project(setting.folder, "appends") as project,
        project.services() as services,
        peer_rates(setting, peer) as peer_rate,
    ):
        target = Target(services)
        yield from producers(setting, target, peer_rate, seconds)
        yield from tasks(setting, target, project, seconds)
        for size in 64, 256:
            yield streams(setting, target.batches(size), size, peer_rate, seconds)
        yield from against_echo(setting, target, seconds)
        yield from many_runs(setting, target, seconds)


class Target:
    """The journal service, and messages for it."""

    def __init__(self, services: Services) -> None:
        self.journal = services.journal
        self.channel = open_channel(services.places.socket("journal"))
        self.stub = journal_pb2_grpc.JournalServiceStub(self.channel)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)
        self._events = list(islice(std_events(1000), 1000))
        self._new_events = [
            journal_pb2.NewEvent(event=event, payload_json=json.dumps(payload).encode())
            for event, payload in self._events
        ]
        self._numbers = count()

    def batches(self, size: int, runs: int = 1) -> Call:
        """A message of `size` rows, made anew each time, to one of `runs` runs."""
        run_ids = cycle([self.journal.create_run() for _ in range(runs)])

        def call(caller: int) -> int:
            request = journal_pb2.AppendEventsRequest(
                run_id=next(run_ids),
                request_id=f"bench-{next(self._numbers)}",
                events=self._new_events[:size],
            )
            self.stub.AppendEvents(request, timeout=60)
            return size

        return call

    def single(self) -> Call:
        """One event through the client library, which coalesces."""
        run_id = self.journal.create_run()

        def call(caller: int) -> int:
            event, payload = self._events[caller]
            self.journal.append(run_id, event, payload)
            return 1

        return call

    def echo(self, caller: int) -> int:
        self.health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        return 1


@contextmanager
def peer_rates(setting: Setting, peer: PeerEnvironment) -> Iterator[Callable[[], float]]:
    command = peer.module("benchmarks.peer_appends", setting.folder, PEER_ROWS)
    with subprocess.Popen(
        command, env=peer.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def rate() -> float:
            asked.write("\n")
            asked.flush()
            return PEER_ROWS / float(told.readline())

        yield rate
        asked.close()


def best_of_turns(
    setting: Setting, ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[float, float]:
    turns = [(ours(), theirs()) for _ in range(setting.repeats)]
    return max(ours for ours, _ in turns), max(theirs for _, theirs in turns)


def flood(callers: int, seconds: float, call: Call, latencies: list[float] | None = None) -> float:
    """Rows per second when so many callers call again and again, each waiting for its answer."""
    stop_at = time.perf_counter() + seconds
    done = [0] * callers

    def work(caller: int) -> None:
        while (began := time.perf_counter()) < stop_at:
            done[caller] += call(caller)
            if latencies is not None:
                latencies.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def producers(
    setting: Setting, target: Target, peer_rate: Callable[[], float], seconds: float
) -> Iterator[Figure]:
    """Each appends one event at a time and waits until it is durable."""
    call = target.single()
    p99s: list[float] = []

    def ours() -> float:
        latencies: list[float] = []
        rate = flood(PRODUCERS, seconds, call, latencies)
        p99s.append(quantiles(latencies, n=100)[98])
        return rate

    rate, theirs = best_of_turns(setting, ours, peer_rate)
    name = f"append, {PRODUCERS} producers"
    yield Figure(name, "rows/s", rate, theirs, rate / theirs)
    yield Figure(f"{name}, p99", "ms", 1e3 * min(p99s))


def tasks(setting: Setting, target: Target, project: Project, seconds: float) -> Iterator[Figure]:
    """Producers on one event loop, against as many threads."""
    for count_of in 1, 8, PRODUCERS:
        call = target.single()
        rate, threads = best_of_turns(
            setting,
            partial(ran, task_rate, project, count_of, seconds),
            partial(flood, count_of, seconds, call),
        )
        name = f"append, {count_of} tasks to threads"
        yield Figure(name, "rows/s", rate, threads, rate / threads)


def ran(rate: Callable[..., Coroutine[Any, Any, float]], *arguments: object) -> float:
    return asyncio.run(rate(*arguments))


async def task_rate(project: Project, tasks: int, seconds: float) -> float:
    """Rows per second of so many tasks, each appending one event after the other."""
    async with connect_async(project.sdd.parent, environ=project.environ) as client:
        run = await client.create_run()
        await run.append("run_started", {})
        events = list(islice(std_events(1000), tasks))
        began = time.perf_counter()
        done = [0] * tasks

        async def work(task: int) -> None:
            event, payload = events[task]
            while time.perf_counter() < began + seconds:
                await run.append(event, payload)
                done[task] += 1

        await asyncio.gather(*map(work, range(tasks)))
        return sum(done) / (time.perf_counter() - began)


def streams(
    setting: Setting, call: Call, size: int, peer_rate: Callable[[], float], seconds: float
) -> Figure:
    """Messages of many rows, two in flight for each stream."""
    rate, theirs = best_of_turns(setting, lambda: flood(2 * STREAMS, seconds, call), peer_rate)
    name = f"append, {STREAMS} streams x {size} rows"
    return Figure(name, "rows/s", rate, theirs, rate / theirs)


def against_echo(setting: Setting, target: Target, seconds: float) -> Iterator[Figure]:
    """One row a message, 64 in flight, against a call that does nothing."""
    call = target.batches(1)
    rate, echo = best_of_turns(
        setting,
        lambda: flood(STREAMS * STREAMS, seconds, call),
        lambda: flood(STREAMS * STREAMS, seconds, target.echo),
    )
    yield Figure("append, one row a message, to echo", "rows/s", rate, echo, rate / echo)


def many_runs(setting: Setting, target: Target, seconds: float) -> Iterator[Figure]:
    one, many = target.batches(64), target.batches(64, runs=64)
    rate, alone = best_of_turns(
        setting,
        lambda: flood(2 * STREAMS, seconds, many),
        lambda: flood(2 * STREAMS, seconds, one),
    )
    yield Figure("append, 64 runs to one run", "rows/s", rate, alone, rate / alone)
