"""Memory of a journal that many follow: how much it grows by, for each store, while rows come."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.commands import memory_mib
from benchmarks.measuring import Figure, Setting
from benchmarks.project import PeerEnvironment, Project, fresh_project
from tests.postgres_server import PostgresServer

from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows

FOLLOWERS, RUNS, ROWS_SEEN = 1_000, 50, 10


def followers(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    """Each follower has been shown some rows, and waits for more."""
    count = setting.count(FOLLOWERS)
    server = PostgresServer()
    try:
        with (
            fresh_project(setting.folder, "files") as on_files,
            fresh_project(setting.folder, "postgres") as plain,
        ):
            url = {"BERNSTEIN_SVC_STORE_URL": server.database()}
            on_postgres = replace(plain, environ={**plain.environ, **url})
            for name, project in ("files", on_files), ("PostgreSQL", on_postgres):
                grown = growth(project, count)
                yield Figure(f"memory of {count} followers, {name}", "MiB", grown)
    finally:
        server.remove()


def growth(project: Project, count: int) -> float:
    """MiB over what the journal had after one follower."""
    with project.services() as services, ExitStack() as opened:
        run_ids = [services.journal.create_run() for _ in range(RUNS)]
        append_to_all(services, run_ids)
        follow(services, run_ids[0], opened)
        before = memory_mib(pid_of(services), "Rss")
        streams = [follow(services, run_ids[n % RUNS], opened) for n in range(count)]
        for _ in range(ROWS_SEEN - 1):
            append_to_all(services, run_ids)
        for stream in streams:
            while next(stream) < ROWS_SEEN:
                pass
        return memory_mib(pid_of(services), "Rss") - before


def append_to_all(services: Services, run_ids: list[str]) -> None:
    for run_id in run_ids:
        services.journal.append(run_id, "x", {"text": "x" * 200})


def follow(services: Services, run_id: str, opened: ExitStack) -> Iterator[int]:
    """Open; gives how many rows it has been shown."""
    watched = services.journal.watch_rows(run_id)
    opened.callback(watched.close)  # type: ignore[attr-defined]  # a generator
    shown = (
        item.first_index + len(item.lines) for item in watched if isinstance(item, WatchedRows)
    )
    next(shown)
    return shown


def pid_of(services: Services) -> int:
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    return int(next(each["pid"] for each in status["services"] if each["service"] == "journal"))
