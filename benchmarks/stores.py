"""Durable appends by where they are kept: files, PostgreSQL through our store, and PostgreSQL by
itself with as many rows a transaction. The services in front of both stores, too.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice

import psycopg
from benchmarks.appends import STREAMS, Target, flood
from benchmarks.measuring import Figure, Setting
from benchmarks.project import PeerEnvironment, fresh_project
from benchmarks.rows import std_events
from tests.postgres_server import OWNER, PostgresServer, installed, open_store

from bernstein_formats.canonical import spelled
from bernstein_formats.event_journal import START, next_row
from bernstein_store.files import FileStore
from bernstein_store.store import Mark, Store

BATCH = 64
SECONDS = 2.0
# One row each, as a plain program would store them: no marks, and no look at what is there.
RAW_TABLE = "create table raw (run int, index bigint, line bytea, primary key (run, index))"
RAW_APPEND = """
    insert into raw (run, index, line)
    select %s, each.index, each.line from unnest(%s::bigint[], %b::bytea[]) as each (index, line)"""

# Appends a batch durably; the argument is its number.
Append = Callable[[int], object]


def stores(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    if installed() is None:
        return
    seconds = SECONDS / 2 if setting.quick else SECONDS
    server = PostgresServer()
    try:
        for writers in (1, 8, 64):
            yield from side_by_side(setting, server, writers, seconds)
        yield from services(setting, server, seconds)
    finally:
        server.remove()


def batch() -> list[bytes]:
    lines, head = [], START
    for event, payload in islice(std_events(BATCH), BATCH):
        line, head = next_row(head, event, spelled(payload).encode(), 1.0, 0.0)
        lines.append(line + b"\n")
    return lines


def side_by_side(
    setting: Setting, server: PostgresServer, writers: int, seconds: float
) -> Iterator[Figure]:
    """So many writers, each with a log of its own and a batch in flight."""
    url = server.database()
    raw_url = url.replace("bernstein@", f"{OWNER}@", 1)
    with psycopg.connect(raw_url, autocommit=True) as connection:
        connection.execute(RAW_TABLE)
    files = FileStore(setting.folder / f"files-{writers}")
    kept = open_store(url)
    numbers = count()
    best = {"files": 0.0, "postgres": 0.0, "raw": 0.0}
    try:
        for _ in range(setting.repeats):
            turn = next(numbers)
            for name, opened in (
                ("files", lambda n, t=turn: store_append(files, f"runs/{t}/{n}.jsonl")),
                ("postgres", lambda n, t=turn: store_append(kept, f"runs/{t}/{n}.jsonl")),
                ("raw", lambda n, t=turn: raw_append(raw_url, t * writers + n)),
            ):
                best[name] = max(best[name], rate(opened, writers, seconds))
    finally:
        kept.close()
    raw, many = best["raw"], f"{writers} x {BATCH} rows"
    for name, shown in ("files", "files"), ("postgres", "PostgreSQL"):
        ratio = best[name] / raw
        yield Figure(f"{shown}, {many}, to the raw engine", "rows/s", best[name], raw, ratio)


def store_append(store: Store, name: str) -> Append:
    log, data = store.open_log(name), b"".join(batch())
    return lambda number: log.append(data, [Mark(f"r{number}", log.size + len(data), "0 x 1")])


def raw_append(url: str, run: int) -> Append:
    connection, lines = psycopg.connect(url, autocommit=True), batch()

    def append(number: int) -> None:
        first = number * BATCH
        connection.execute(RAW_APPEND, [run, list(range(first, first + BATCH)), lines])

    return append


def rate(opened: Callable[[int], Append], writers: int, seconds: float) -> float:
    """Rows per second of all writers."""
    appends = [opened(number) for number in range(writers)]
    done = [0] * writers
    stop_at = time.perf_counter() + seconds

    def work(writer: int) -> None:
        while time.perf_counter() < stop_at:
            appends[writer](done[writer])
            done[writer] += 1

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) * BATCH / (time.perf_counter() - began)


def services(setting: Setting, server: PostgresServer, seconds: float) -> Iterator[Figure]:
    """The journal in front of each store, two messages in flight for each stream."""
    with (
        fresh_project(setting.folder, "on-files") as on_files,
        fresh_project(setting.folder, "on-postgres") as plain,
    ):
        url = {"BERNSTEIN_SVC_STORE_URL": server.database()}
        on_postgres = replace(plain, environ={**plain.environ, **url})
        with on_files.services() as files, on_postgres.services() as postgres:
            calls = [Target(each).batches(BATCH, runs=STREAMS) for each in (postgres, files)]
            turns = [[flood(2 * STREAMS, seconds, call) for call in calls]
                     for _ in range(setting.repeats)]  # fmt: skip
    ours, theirs = (max(rates) for rates in zip(*turns, strict=True))
    name = f"services, {STREAMS} x {BATCH} rows, PostgreSQL to files"
    yield Figure(name, "rows/s", ours, theirs, ours / theirs)
