"""What PostgreSQL promises beyond the contract of all stores: many processes, many origins."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from prometheus_client import REGISTRY
from psycopg import sql
from tests.postgres_server import OWNER, SERVICE, PostgresServer, open_store
from tests.suspended import suspend

from bernstein_formats.errors import (
    Conflict,
    ForeignWriter,
    InvalidInput,
    RunExists,
    StoreFailed,
    Unavailable,
)
from bernstein_runtime import metrics
from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres import database as database_module
from bernstein_store.postgres.pool import connected
from bernstein_store.postgres.schema import Migration, check_schema, migrate, migrations
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.postgres.target import target_of
from bernstein_store.store import Mark

NAME = "runs/r1/journal.jsonl"


@pytest.fixture
def stores(database_url: str, tmp_path: Path) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes' views of one origin."""
    made = open_store(database_url, str(tmp_path)), open_store(database_url, str(tmp_path))
    yield made
    for each in made:
        each.close()


def test_of_two_writers_at_one_position_the_second_catches_up(stores):
    ours, theirs = (each.open_log(NAME) for each in stores)
    ours.append(b"one\n", [Mark("a", 4, "1")])

    with pytest.raises(ForeignWriter):
        theirs.append(b"two\n", [Mark("b", 4, "2")])
    assert list(theirs.catch_up()) == [Mark("a", 4, "1")]
    theirs.append(b"two\n", [Mark("b", 8, "2")])

    assert stores[0].get(NAME) == b"one\ntwo\n"
    assert list(stores[0].marks_of(NAME)) == [Mark("a", 4, "1"), Mark("b", 8, "2")]
    assert list(ours.catch_up()) == [Mark("b", 8, "2")]


def test_writers_side_by_side_never_fork_a_log(stores):
    def write(writer: int) -> None:
        log = stores[writer % 2].open_log(NAME)
        for number in range(20):
            line = b"%d %d\n" % (writer, number)
            while True:
                try:
                    mark = Mark(f"{writer}-{number}", log.size + len(line), "")
                    log.append(line, [mark])
                except ForeignWriter:
                    log.catch_up()
                else:
                    break

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))

    lines = (stores[0].get(NAME) or b"").splitlines()
    assert sorted(lines) == sorted(b"%d %d" % (w, n) for w in range(6) for n in range(20))
    for writer in range(6):
        assert [line for line in lines if line.startswith(b"%d " % writer)] == [
            b"%d %d" % (writer, number) for number in range(20)
        ]
    sizes = [mark.size for mark in stores[0].marks_of(NAME)]
    assert sizes == sorted(set(sizes))


def test_a_log_that_was_ended_elsewhere_takes_nothing(stores):
    ours, theirs = stores
    log = ours.open_log(NAME)
    log.append(b"one\n", [])
    theirs.end_log(NAME, 4, "runs/r1/seal.json", b"seal")

    with pytest.raises(ForeignWriter):
        log.append(b"two\n", [])
    assert list(log.catch_up()) == []
    with pytest.raises(ForeignWriter):
        log.append(b"two\n", [])
    assert ours.get(NAME) == b"one\n"


def test_a_log_that_was_put_in_order_elsewhere_is_opened_again(stores):
    ours, theirs = stores
    log = ours.open_log(NAME)
    log.append(b"one\ntwo\n", [])
    theirs.rewrite_log(NAME, lambda: iter([b"one\n"]))

    for use in (lambda: log.append(b"three\n", []), log.catch_up):
        with pytest.raises(ForeignWriter):
            use()
    assert ours.open_log(NAME).size == 4


def test_other_processes_are_told_of_changes(stores):
    ours, theirs = stores
    heard, came = [], threading.Event()

    def hear(name: str) -> None:
        heard.append(name)
        came.set()

    theirs.tell(hear)
    ours.tell(lambda _: None)
    log = ours.open_log(NAME)
    while not came.wait(0.2):  # they may not listen yet
        log.append(b"one\n", [])

    assert set(heard) == {NAME}


def test_a_lock_keeps_other_processes_out(stores, monkeypatch):
    ours, theirs = stores
    monkeypatch.setattr(database_module, "LOCK_WAIT_SECONDS", 1.0)
    with (
        ours.locked("audit/.chain.lock"),
        pytest.raises(Conflict, match="try again"),
        theirs.locked("audit/.chain.lock"),
    ):
        pass
    with theirs.locked("audit/.chain.lock"):
        pass


def test_who_lost_a_lock_appends_no_more(stores, postgres):
    ours, theirs = stores
    log, late = theirs.open_log(NAME), ours.open_log(NAME)
    with ours.locked("audit/.chain.lock"):
        postgres.execute(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"
        )
        with pytest.raises(Unavailable):
            late.append(b"one\n", [])
    log.append(b"two\n", [])
    assert ours.get(NAME) == b"two\n"


def test_a_lost_connection_is_a_retry_that_is_counted(stores, postgres):
    ours, _ = stores
    metrics.enable("journal")
    before = REGISTRY.get_sample_value("bernstein_store_retries_total")
    postgres.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename <> current_user"
    )
    ours.put(NAME, b"one\n")

    assert before is not None
    assert (REGISTRY.get_sample_value("bernstein_store_retries_total") or 0) > before


def test_a_reader_of_replaced_content_is_told(stores):
    ours, theirs = stores
    ours.put("runs/r1/big", b"x" * 3_000_000)
    chunks = ours.read("runs/r1/big")
    reader = ours.open_reader("runs/r1/big")
    assert next(chunks)
    theirs.put("runs/r1/big", b"y" * 3_000_000)

    with pytest.raises(Unavailable, match="replaced while it was read"):
        list(chunks)
    assert reader is not None
    assert reader.facts()[0] == 3_000_000
    with pytest.raises(Unavailable, match="replaced while it was read"):
        reader.read(2_000_000, 10)


def test_origins_with_the_same_run_id_do_not_see_each_other(database_url, tmp_path):
    first, second = (open_store(database_url, f"{tmp_path}:{number}") for number in (1, 2))
    for number, store in enumerate((first, second)):
        store.make_run("r1")
        store.put("runs/r1/metadata.json", b"%d" % number)
        store.open_log(NAME).append(b"%d\n" % number, [])
        with pytest.raises(RunExists):
            store.make_run("r1")

    assert (first.get(NAME), second.get(NAME)) == (b"0\n", b"1\n")
    first.remove_run("r1", (), "")
    assert first.run_ids() == []
    assert second.names_below("runs") == ["r1/journal.jsonl", "r1/metadata.json"]
    for each in (first, second):
        each.close()


def test_the_database_itself_keeps_origins_apart(database_url, tmp_path):
    """Whatever a query of ours forgets: without the origin's number there is nothing."""
    store = open_store(database_url, str(tmp_path))
    store.open_log(NAME).append(b"one\n", [Mark("a", 4, "")])
    with connected(target_of(StoreConfig(url=database_url))) as connection:
        for table in ("runs", "files", "pieces", "marks"):
            query = sql.SQL("select count(*) from bernstein.{}").format(sql.Identifier(table))
            assert connection.execute(query).fetchone() == (0,)
            with connection.transaction():
                own = f"select set_config('bernstein.origin_id', '{store._origin_id}', true)"
                connection.execute(own.encode())
                assert connection.execute(query).fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("insert into bernstein.runs values (1, 'r')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("alter table bernstein.runs disable row level security")
    store.close()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("mysql://user@/db", "does not begin with postgresql://"),
        ("postgresql://user:hunter2@/db", "holds a password"),
        ("postgresql://user@/db?password=hunter2", "holds a password"),
        ("postgresql:///db", "names no user"),
        ("postgresql://user@db.example/db", "another host: add sslmode=verify-full"),
        ("postgresql://user@localhost,10.0.0.1/db?sslmode=require", "10.0.0.1 is another host"),
        ("postgresql://user@/db?nonsense=hunter2", "does not understand it"),
    ],
)
def test_a_bad_url_is_refused_and_not_repeated(url: str, what: str) -> None:
    with pytest.raises(InvalidInput, match=what) as told:
        target_of(StoreConfig(url=url))
    assert "hunter2" not in told.value.message


def test_a_password_comes_from_its_file_and_goes_nowhere_else(tmp_path: Path) -> None:
    file = tmp_path / "password"
    word, other = "hunter2", "changed"
    file.write_text(f"{word}\n")
    config = StoreConfig(url="postgresql://user@/db", password_file=str(file))
    target = target_of(config)

    assert target.arguments()["password"] == word
    assert word not in repr(target)
    file.write_text(other)
    assert target.arguments()["password"] == other
    file.write_text("")
    with pytest.raises(InvalidInput, match="holds no password"):
        target.arguments()
    with pytest.raises(InvalidInput, match="not an absolute path"):
        target_of(StoreConfig(url=config.url, password_file=file.name))


def test_a_database_without_our_tables_is_named_with_what_to_do(postgres: PostgresServer) -> None:
    with pytest.raises(StoreFailed, match="run `bernstein admin migrate`"):
        open_store(postgres.url("postgres"))


def test_a_user_whom_nothing_keeps_apart_is_refused(postgres: PostgresServer) -> None:
    url = postgres.database().replace(SERVICE, "postgres", 1)
    with pytest.raises(StoreFailed, match="superuser"):
        open_store(url)


def test_a_server_that_acknowledges_too_early_is_refused(postgres: PostgresServer) -> None:
    url = postgres.database()
    name = url.partition("@/")[2].partition("?")[0]
    postgres.execute(f"alter database {name} set synchronous_commit = off")
    with pytest.raises(StoreFailed, match="synchronous_commit = off"):
        open_store(url)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        open_store(f"postgresql://user@/db?host={tmp_path}")


def test_migrations_are_applied_once_and_in_order(postgres: PostgresServer, monkeypatch) -> None:
    url = postgres.database().replace(SERVICE, OWNER, 1)
    known = migrations()
    assert [each.number for each in known] == list(range(1, len(known) + 1))
    with connected(target_of(StoreConfig(url=url))) as connection:
        assert migrate(connection, "db", SERVICE) == []
        assert check_schema(connection, "db") == len(known)

        added = Migration(len(known) + 1, "added.sql", "create table added ()", needs=1)
        patch_migrations(monkeypatch, [*known, added])
        assert migrate(connection, "db", SERVICE) == ["added.sql"]
        # The release before goes on with what was added.
        patch_migrations(monkeypatch, known)
        assert check_schema(connection, "db") == len(known) + 1
        assert migrate(connection, "db", SERVICE) == []

        gone = Migration(len(known) + 2, "gone.sql", "drop table added", needs=len(known) + 1)
        patch_migrations(monkeypatch, [*known, added, gone])
        migrate(connection, "db", SERVICE)
        patch_migrations(monkeypatch, known)
        with pytest.raises(StoreFailed, match="install a newer release"):
            check_schema(connection, "db")


def test_a_migration_that_fails_leaves_nothing(postgres: PostgresServer, monkeypatch) -> None:
    url = postgres.database().replace(SERVICE, OWNER, 1)
    known = migrations()
    bad = [
        Migration(len(known) + 1, "good.sql", "create table added ()", needs=1),
        Migration(len(known) + 2, "bad.sql", "create table added ()", needs=1),
    ]
    patch_migrations(monkeypatch, [*known, *bad])
    target = target_of(StoreConfig(url=url))
    with pytest.raises(StoreFailed, match="already exists"), connected(target) as connection:
        migrate(connection, "db", SERVICE)
    patch_migrations(monkeypatch, known)
    with connected(target) as connection:
        assert check_schema(connection, "db") == len(known)
        assert connection.execute("select to_regclass('bernstein.added')").fetchone() == (None,)


def test_a_migration_that_was_changed_is_refused(postgres: PostgresServer, monkeypatch) -> None:
    url = postgres.database().replace(SERVICE, OWNER, 1)
    patch_migrations(monkeypatch, [Migration(1, "0001_contents.sql", "select 1", needs=1)])
    with (
        connected(target_of(StoreConfig(url=url))) as connection,
        pytest.raises(StoreFailed, match=r"0001_contents\.sql was applied with another text"),
    ):
        migrate(connection, "db", SERVICE)


def patch_migrations(monkeypatch: pytest.MonkeyPatch, made: list[Migration]) -> None:
    monkeypatch.setattr("bernstein_store.postgres.schema.migrations", lambda: made)


def test_an_answer_that_was_lost_with_its_connection_is_found(stores, monkeypatch) -> None:
    """The commit came through and nobody heard of it: the same append is not made twice."""
    ours, theirs = stores
    log = ours.open_log(NAME)
    log.append(b"one\n", [Mark("a", 4, "1")])
    answer_gets_lost(monkeypatch, times=1)

    log.append(b"two\n", [Mark("b", 8, "2")])
    log.append(b"three\n", [Mark("c", 14, "3")])

    assert ours.get(NAME) == b"one\ntwo\nthree\n"
    assert [mark.request_id for mark in theirs.open_log(NAME).marks] == ["a", "b", "c"]


def test_a_database_that_stays_away_is_told_and_the_marks_say_what_came_of_it(
    stores, monkeypatch
) -> None:
    ours, _ = stores
    log = ours.open_log(NAME)
    with monkeypatch.context() as patched:
        patched.setattr(database_module, "OUTAGE_SECONDS", 0.2)
        answer_gets_lost(patched, times=100)
        with pytest.raises(Unavailable, match="cannot be reached"):
            log.append(b"one\n", [Mark("a", 4, "1")])

    assert list(log.catch_up()) == [Mark("a", 4, "1")]
    log.append(b"two\n", [Mark("b", 8, "2")])
    assert ours.get(NAME) == b"one\ntwo\n"


def test_a_server_that_freezes_is_left_for_another_connection(
    database_url, postgres, tmp_path
) -> None:
    """What it still had in its hands when it froze changes nothing when it goes on."""
    config = StoreConfig(url=database_url, statement_timeout_seconds=0.5, connections_max=2)
    store = open_store(database_url, str(tmp_path), config)
    log = store.open_log(NAME)
    frozen = postgres.execute(
        "select pid from pg_stat_activity where usename = 'bernstein' and state = 'idle'"
    )
    began = time.monotonic()
    for (pid,) in frozen:
        suspend(pid)
    try:
        log.append(b"one\n", [Mark("a", 4, "1")])
    finally:
        for (pid,) in frozen:
            os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began > 1.5
    log.append(b"two\n", [Mark("b", 8, "2")])

    assert frozen
    assert store.get(NAME) == b"one\ntwo\n"
    store.close()


def test_a_lock_is_taken_on_another_connection_when_a_server_freezes(
    database_url, postgres, tmp_path
) -> None:
    config = StoreConfig(url=database_url, statement_timeout_seconds=0.5, connections_max=2)
    store = open_store(database_url, str(tmp_path), config)
    with store.locked("a"):
        pass
    frozen = postgres.execute(
        "select pid from pg_stat_activity where usename = 'bernstein' and state = 'idle'"
    )
    for (pid,) in frozen:
        suspend(pid)
    try:
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(lambda: _names_own_lock(store))
            try:
                assert held.result(20)
            finally:
                for (pid,) in frozen:
                    os.kill(pid, signal.SIGCONT)
    finally:
        store.close()


def _names_own_lock(store: PostgresStore) -> bool:
    with store.locked("a"):
        return store.get("nothing") is None


def test_rows_that_were_removed_by_hand_are_missed(stores, database_url) -> None:
    ours, _ = stores
    ours.open_log(NAME).append(b"x" * 600_000, [])
    with connected(target_of(StoreConfig(url=database_url))) as connection:
        own = f"select set_config('bernstein.origin_id', '{ours._origin_id}', false)"
        connection.execute(own.encode())
        connection.execute("delete from bernstein.pieces where position > 0")

    with pytest.raises(StoreFailed, match=f"{NAME} has no bytes from 262144 on"):
        ours.get(NAME)


def answer_gets_lost(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Transactions are committed, and then their connection breaks."""
    left = [times]
    once = database_module.Database._once

    def broken(self, connection, work):
        done = once(self, connection, work)
        if left[0]:
            left[0] -= 1
            connection.close()
            raise database_module._Lost(psycopg.OperationalError("gone"))
        return done

    monkeypatch.setattr(database_module.Database, "_once", broken)
