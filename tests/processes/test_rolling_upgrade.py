"""Clients, services and schema of two releases side by side, replaced one by one under load: no
append fails, and every answered row is there once, in its caller's order."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from tests.postgres_server import OWNER, PostgresServer
from tests.releases import ROOT, Release, release_before, release_now

from bernstein_runtime.places import places_for

pytestmark = pytest.mark.processes
# Rows of each client between two changes.
PAUSE_SECONDS = 0.1
PARTS = ("schema", "service", "client")
# A service of a release that brings a migration comes behind it: it refuses to start before.
ORDERS = [order for order in permutations(PARTS) if order.index("schema") < order.index("service")]
# `make test-long` takes all of them.
TRIED = ORDERS if "BERNSTEIN_TEST_CASES" in os.environ else ORDERS[:1]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release_before(tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release_now(tmp_path_factory.mktemp("now"))


class Host:
    """A journal and its clients, of whatever releases."""

    def __init__(self, project: Any, environ: dict[str, str]) -> None:
        self.project = project
        self.environ = {**project.environ, **environ}
        self.socket = places_for(project.sdd, self.environ).socket("journal")
        self.service: subprocess.Popen[str] | None = None
        self.clients: list[subprocess.Popen[str]] = []
        self.answered: dict[str, int] = {}
        self.failed: list[str] = []

    def serve(self, release: Release) -> None:
        """Replace the journal; what is under way is finished by the one that goes."""
        self.end_service()
        self.service = subprocess.Popen(
            release.python("-m", "bernstein_journal", self.project.sdd),
            env=release.environ(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end_service(self) -> None:
        if self.service is not None:
            self.service.terminate()
            self.service.communicate(timeout=30)

    def append(self, release: Release, run_id: str) -> None:
        """One client more; returns once all of its threads had an answer."""
        program = ROOT / "tests" / "appending.py"
        name = f"{release.name}-{len(self.answered)}-{len(self.clients)}"
        client = subprocess.Popen(
            release.python(program, self.socket, run_id, name),
            env=release.environ(self.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert [client.stdout.readline() for _ in range(4)] == ["ready\n"] * 4
        self.clients.append(client)

    def end_client(self) -> None:
        """The one that is there the longest."""
        told = json.loads(self.clients.pop(0).communicate("", timeout=60)[0].splitlines()[-1])
        self.answered |= told["rows"]
        self.failed += told["failed"]

    def end(self) -> None:
        while self.clients:
            self.end_client()
        self.end_service()


@pytest.fixture(params=["files", "postgres"])
def host(request: pytest.FixtureRequest, project: Any) -> Iterator[Host]:
    settings = {}
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = f"u{os.urandom(4).hex()}"
        server.execute(f"create database {name} owner {OWNER}")
        settings = {
            "BERNSTEIN_SVC_STORE_URL": server.url(name),
            "BERNSTEIN_SVC_STORE_ORIGIN": "fleet:demo",
        }
    made = Host(project, settings)
    yield made
    made.end()


def migrate(host: Host, release: Release) -> None:
    if "BERNSTEIN_SVC_STORE_URL" in host.environ:
        subprocess.run(
            release.python("-m", "bernstein_store", "migrate", host.project.sdd, "--owner", OWNER),
            cwd=host.project.folder,
            env=release.environ(host.environ),
            check=True,
            capture_output=True,
        )


def change(host: Host, part: str, release: Release, run_id: str) -> None:
    """Have one part be of another release, while everything else goes on."""
    match part:
        case "schema":
            migrate(host, release)
        case "service":
            host.serve(release)
        case "client":
            host.append(release, run_id)
            threading.Event().wait(PAUSE_SECONDS)
            host.end_client()
    threading.Event().wait(PAUSE_SECONDS)


def stored(host: Host, run_id: str) -> dict[str, list[int]]:
    """By caller, as `bernstein` of now reads it, which verifies it besides."""
    with host.project.__class__(host.project.folder, host.environ).services() as services:
        found: dict[str, list[int]] = {}
        for line in b"".join(services.journal.read_journal(run_id)).splitlines():
            row = json.loads(line)
            found.setdefault(row["p"], []).append(row["n"])
        assert services.journal.verify_run(run_id).chain_consistent
        services.supervisor.ask({"do": "stop"})
    return found


@pytest.mark.parametrize("order", TRIED, ids="-".join)
def test_each_part_is_replaced_under_load_and_put_back(
    host: Host, before: Release, now: Release, order: tuple[str, ...]
) -> None:
    """Up in one order, and one release down again in the opposite one; the schema stays."""
    run_id = "20261201-000000"
    migrate(host, before)
    host.serve(before)
    host.append(before, run_id)

    for part in order:
        change(host, part, now, run_id)
    for part in reversed(order):
        if part != "schema":
            change(host, part, before, run_id)
    host.end()

    assert host.failed == []
    # Four threads each of the client of before, of now, and of before again.
    assert len(host.answered) == 12
    assert min(host.answered.values()) > 0
    assert stored(host, run_id) == {
        name: list(range(count)) for name, count in host.answered.items()
    }
