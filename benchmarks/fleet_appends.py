"""Durable appends of a fleet's clients: over mutual TLS, through the client library, a run each.

Against the raw engine of each store: as many threads that write as many bytes and sync them, or
that insert as many rows a transaction, without services, checks and chains.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import psycopg
from benchmarks.appends import Call, flood
from benchmarks.measuring import Figure, Setting
from benchmarks.project import PeerEnvironment
from benchmarks.rows import std_events
from benchmarks.stores import BATCH, RAW_TABLE, SECONDS, batch, raw_append
from tests.fleet import fleet_in
from tests.postgres_server import OWNER, PostgresServer, installed

ORIGIN = "fleet:demo"
CLIENTS = (1, 8, 64)
EVENTS = list(islice(std_events(BATCH), BATCH))


def fleet_appends(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    if installed() is None:
        return
    server = PostgresServer()
    try:
        url = server.database()
        stores = (
            ("files", {"BERNSTEIN_SVC_FLEET_ORIGIN": ORIGIN}, raw_files(setting.folder / "raw")),
            ("PostgreSQL", {"BERNSTEIN_SVC_STORE_URL": url}, raw_rows(url)),
        )
        for name, variables, raw in stores:
            yield from over_tls(setting, name, variables, raw)
    finally:
        server.remove()


def over_tls(
    setting: Setting,
    name: str,
    variables: dict[str, str],
    raw: Callable[[int], Call],
) -> Iterator[Figure]:
    seconds = SECONDS / 2 if setting.quick else SECONDS
    with (
        fleet_in(setting.folder / name, **variables) as fleet,
        ExitStack() as opened,
    ):
        host = fleet.host("services")
        host.start("journal", "signer")
        journals = []
        for number in range(max(CLIENTS)):
            client = fleet.client(f"client-{number}", host)
            journals.append(opened.enter_context(client.services()).journal)
        runs = [journal.create_run() for journal in journals]

        def ours(caller: int) -> int:
            journals[caller].append_many(runs[caller], EVENTS)
            return BATCH

        for clients in CLIENTS:
            turns = [
                (flood(clients, seconds, ours), flood(clients, seconds, raw(clients)))
                for _ in range(setting.repeats)
            ]
            rate, engine = (max(rates) for rates in zip(*turns, strict=True))
            figure = f"mTLS, {name}, {clients} x {BATCH} rows, to raw"
            yield Figure(figure, "rows/s", rate, engine, rate / engine)


def raw_files(folder: Path) -> Callable[[int], Call]:
    """A file a thread; a batch is one write and one fdatasync."""
    folder.mkdir(parents=True)
    data = b"".join(batch())

    def opened(writers: int) -> Call:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(folder / str(number), flags) for number in range(writers)]

        def append(caller: int) -> int:
            os.write(files[caller], data)
            os.fdatasync(files[caller])
            return BATCH

        return append

    return opened


def raw_rows(url: str) -> Callable[[int], Call]:
    """A connection a thread."""
    own = url.replace("bernstein@", f"{OWNER}@", 1)
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute(RAW_TABLE)
    taken = [0]

    def opened(writers: int) -> Call:
        appends = [raw_append(own, taken[0] + number) for number in range(writers)]
        numbers = [0] * writers
        taken[0] += writers

        def append(caller: int) -> int:
            appends[caller](numbers[caller])
            numbers[caller] += 1
            return BATCH

        return append

    return opened
