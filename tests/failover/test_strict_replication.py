"""Acknowledged means: on two hosts. Without a second host nothing is acknowledged."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.failover.cluster import DATABASES, DatabaseCluster
from tests.postgres_server import open_store

from bernstein_formats.errors import Unavailable
from bernstein_store.postgres import database as database_module
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.store import Mark

pytestmark = pytest.mark.processes
NAME = "runs/r1/journal.jsonl"
SIZE_THERE = "select size from bernstein.files"


@pytest.fixture
def cluster() -> Iterator[DatabaseCluster]:
    made = DatabaseCluster()
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def store(cluster: DatabaseCluster) -> Iterator[PostgresStore]:
    config = replace(cluster.store_config(), statement_timeout_seconds=2.0)
    made = open_store(config.url, "fleet:strict", config)
    yield made
    made.close()


def test_a_row_is_acknowledged_when_a_standby_has_it_and_never_before(
    cluster: DatabaseCluster, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "OUTAGE_SECONDS", 3.0)
    log = store.open_log(NAME)
    first, standby = cluster.leader(), cluster.synchronous()

    log.append(b"one\n", [Mark("a", 4, "")])
    cluster.freeze(first)  # nothing more of it can get across
    _wait_for_size(cluster, standby, 4)
    cluster.resume(first)
    cluster.wait_until_whole()

    first = cluster.leader()
    others = [name for name in DATABASES if name != first]
    for name in others:
        cluster.kill(name)
    with pytest.raises(Unavailable):
        log.append(b"two\n", [Mark("b", 8, "")])

    cluster.start(others[0])
    _eventually(log, b"two\n", Mark("b", 8, ""))
    assert (log.size, store.get(NAME)) == (8, b"one\ntwo\n")
    _wait_for_size(cluster, others[0], 8)


def _eventually(log, data: bytes, mark: Mark) -> None:
    """Ask again and again, as a client does that was told to."""
    give_up = time.monotonic() + 60
    while True:
        try:
            log.append(data, [mark])
        except Unavailable:
            assert time.monotonic() < give_up, "appends do not go on"
        else:
            return


def _wait_for_size(cluster: DatabaseCluster, name: str, size: int) -> None:
    """What that host itself has; it replays what is on its disk within a moment."""
    give_up = time.monotonic() + 10
    while cluster.sql(SIZE_THERE, name, "bernstein") != str(size):
        assert time.monotonic() < give_up, f"{name} has not what was acknowledged"
        time.sleep(0.05)
