"""Following a peer while everybody is killed: what is stored in the end is what was written."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from tests.conftest import Project
from tests.fleet import fleet_in
from tests.postgres_server import PostgresServer

from bernstein_formats import paths
from bernstein_formats.event_journal import START, next_row

pytestmark = pytest.mark.processes
RUN_ID = "20261201-000000"
PATIENCE_SECONDS = 60.0


class Follower:
    """`bernstein import --follow --json` as a process."""

    def __init__(self, project: Project, source: Path) -> None:
        self._project, self._source = project, source
        self.lines: list[Mapping[str, Any]] = []
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "bernstein_cli", "import", "--follow", str(self._source)]
        return subprocess.Popen(
            [*argv, "--sdd-dir", str(self._project.sdd), "--json"],
            env={**self._project.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def until(self, **wanted: Any) -> Mapping[str, Any]:
        """The next line that says this."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            assert self._process.stdout is not None
            line = self._line(self._process.stdout)
            if line is not None and wanted.items() <= line.items():
                return line
        raise AssertionError(f"{wanted} was not told; these were: {self.lines[-5:]}")

    def _line(self, output: IO[bytes]) -> Mapping[str, Any] | None:
        ready, _, _ = select.select([output], [], [], 1.0)
        text = output.readline() if ready else b""
        if not text:
            return None
        line: Mapping[str, Any] = json.loads(text)
        self.lines.append(line)
        return line

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def start_again(self) -> None:
        self._process = self._started()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)
        return self._process.returncode


@contextmanager
def following(project: Project, source: Path) -> Iterator[Follower]:
    follower = Follower(project, source)
    try:
        yield follower
    finally:
        follower.kill()


class Peer:
    """Writes a run of several files, a few lines at a time."""

    def __init__(self, folder: Path) -> None:
        self.sdd = folder / ".sdd"
        self.head = START
        self.calls = 0
        (self.sdd / "runs" / RUN_ID).mkdir(parents=True)
        (self.sdd / paths.metadata_path(RUN_ID)).write_bytes(b'{"run_id": "x", "started_at": 1.5}')

    def write(self, *events: str) -> None:
        with (self.sdd / paths.journal_path(RUN_ID)).open("ab") as file:
            for event in events:
                line, self.head = next_row(self.head, event, b'{"task_id": "a"}', 1.5, 0.25)
                file.write(line + b"\n")
        with (self.sdd / paths.llm_calls_path(RUN_ID)).open("ab") as file:
            self.calls += 1
            file.write(b'{"key": "k%d", "response": "r"}\n' % self.calls)

    def files(self) -> dict[str, bytes]:
        found = self.sdd.rglob("*")
        return {str(p.relative_to(self.sdd)): p.read_bytes() for p in found if p.is_file()}


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "peer")


def kill_journal(project: Project) -> None:
    with project.services() as services:
        status = services.supervisor.ask({"do": "status"})
    assert status is not None
    (pid,) = (each["pid"] for each in status["services"] if each["service"] == "journal")
    os.kill(pid, signal.SIGKILL)


def exported(project: Project) -> dict[str, bytes]:
    """The run as it is stored, without what was made here."""
    parts: dict[str, list[bytes]] = {}
    with project.services() as services:
        for name, data in services.copies.export_run(RUN_ID):
            parts.setdefault(name, []).append(data)
    return {name: b"".join(each) for name, each in parts.items() if not name.endswith("seal.json")}


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_a_run_arrives_byte_for_byte_and_is_sealed_though_both_sides_are_killed(
    kind: str, project: Project, postgres: PostgresServer, peer: Peer
) -> None:
    if kind == "postgres":
        settings = {
            "BERNSTEIN_SVC_STORE_URL": postgres.database(),
            "BERNSTEIN_SVC_STORE_ORIGIN": "fleet:demo",
        }
        project = replace(project, environ={**project.environ, **settings})
    peer.write("run_started")
    with following(project, peer.sdd.parent) as follower:
        follower.until(run_id=RUN_ID, status="new")
        for number in range(3):
            peer.write("x", "y")
            if number:
                kill_journal(project)
            follower.until(run_id=RUN_ID, rows=3 + 2 * number)
            follower.kill()
            peer.write()
            follower.start_again()
        peer.write("run_completed", "run_quiescence")
        sealed = follower.until(run_id=RUN_ID, status="sealed")
        assert (sealed["rows"], sealed["calls"]) == (9, 8)
        assert follower.stop() == 0

    assert exported(project) == peer.files()
    with project.services() as services:
        assert services.journal.verify_run(RUN_ID).identity == "verified"


def test_a_host_without_services_follows_into_a_fleet_under_its_own_name(
    project: Project, peer: Peer, tmp_path: Path
) -> None:
    with fleet_in(tmp_path / "fleet", project, BERNSTEIN_SVC_FLEET_ORIGIN="fleet:demo") as fleet:
        host = fleet.host("one")
        host.start("journal", "recorder", "rederiver", "signer")
        client = fleet.client("builder", host)
        # Its state folder is the peer's: nothing is written there.
        there = replace(client, folder=peer.sdd.parent)
        peer.write("run_started")
        with following(there, peer.sdd.parent) as follower:
            follower.until(run_id=RUN_ID, status="new")
            host.kill("journal")
            peer.write("x", "run_completed")
            host.start("journal")
            sealed = follower.until(run_id=RUN_ID, status="sealed")
            assert (sealed["rows"], sealed["calls"]) == (3, 2)

        assert exported(client) == peer.files()
        assert not (peer.sdd / "svc").exists()
