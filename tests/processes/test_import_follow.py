"""Following a peer while everybody is killed: what is stored in the end is what was written."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.fleet import fleet_in
from tests.follower import following, kill_journal
from tests.postgres_server import PostgresServer

from bernstein_formats import paths
from bernstein_formats.event_journal import START, next_row

pytestmark = pytest.mark.processes
RUN_ID = "20261201-000000"


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
    with fleet_in(tmp_path / "fleet", BERNSTEIN_SVC_FLEET_ORIGIN="fleet:demo") as fleet:
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
