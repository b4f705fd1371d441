"""Whatever dies or freezes: what was acknowledged is there, once, and every client goes on."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.failover.clients import Clients, longest_waits
from tests.failover.cluster import DatabaseCluster
from tests.fleet import HOST, Fleet, ServiceHost, fleet_in

from bernstein_client.connection import Services
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
LONG = os.environ.get("BERNSTEIN_TEST_FLEET") == "long"
RESTART_SECONDS = 2.0  # as a service manager waits before it starts what died
POSTGRES_GOAL_SECONDS, HOST_GOAL_SECONDS = 10.0, 30.0


@dataclass(frozen=True)
class Outage:
    """The longest that a request of each kind took which was answered after a fault."""

    fault: str
    append_seconds: float
    record_seconds: float
    seal_seconds: float


class Drill:
    """A fleet under load, and faults that are done to it one after the other."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        model = opened.enter_context(ModelServer())
        key_file = folder / "provider-key"
        key_file.touch(0o600)
        key_file.write_text("sk-of-a-test")
        self.cluster = DatabaseCluster(etcd_on_databases=LONG)
        opened.callback(self.cluster.remove)
        self.fleet: Fleet = opened.enter_context(
            fleet_in(
                folder / "fleet",
                BERNSTEIN_SVC_STORE_URL=self.cluster.url(),
                BERNSTEIN_SVC_STORE_PASSWORD_FILE=str(self.cluster.password_file),
                BERNSTEIN_SVC_FLEET_ORIGIN="fleet:demo",
                BERNSTEIN_SVC_RECORDER_OPENAI_BASE_URL=model.base_url,
                BERNSTEIN_SVC_RECORDER_OPENAI_KEY_FILE=str(key_file),
            )
        )
        self.one = self.fleet.host("one")
        self.two = self.fleet.host("two", BERNSTEIN_SVC_ENDPOINT=_place(self.one))
        self.one.start("signer", "journal", "recorder", "rederiver")
        self.two.start("journal")
        # The signer, recorder and rederiver are on the first host alone; the journal is on both.
        self.project = self.fleet.client("clients", self.one, self.two)
        self.services = opened.enter_context(self.project.services())
        self.clients = Clients(self.services, folder / "answers", self.project.environ)
        opened.callback(self.clients.reap)
        self.clients.wait_until_all_go_on()
        self._faults: list[tuple[str, float]] = []

    def fault(self, name: str, work: Callable[[], None]) -> None:
        """Do it; return when everybody goes on."""
        self._faults.append((name, time.monotonic()))
        work()
        self.clients.wait_until_all_go_on()

    def outages(self) -> list[Outage]:
        """Of each fault, until the next one; after the clients ended."""
        ends = [began for _, began in self._faults[1:]] + [time.monotonic()]
        return [
            Outage(
                name,
                *(round(each, 2) for each in longest_waits(self.clients, began, until).values()),
            )
            for (name, began), until in zip(self._faults, ends, strict=True)
        ]

    # The faults.

    def kill_journal(self) -> None:
        self._kill_and_restart(self.one, "journal")

    def kill_signer(self) -> None:
        self._kill_and_restart(self.one, "signer")

    def kill_recorder(self) -> None:
        self._kill_and_restart(self.one, "recorder")

    def kill_client(self) -> None:
        self.clients.kill_one()

    def kill_postgres(self) -> None:
        self.cluster.kill_postgres(self.cluster.leader())

    def _kill_and_restart(self, host: ServiceHost, service: str) -> None:
        host.kill(service)
        time.sleep(RESTART_SECONDS)
        host.start(service)


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    with ExitStack() as opened:
        yield Drill(tmp_path, opened)


def test_nothing_acknowledged_is_lost_when_a_journal_and_the_primary_are_killed(
    drill: Drill, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    drill.fault("journal killed", drill.kill_journal)
    drill.fault("PostgreSQL killed", drill.kill_postgres)
    if LONG:
        _faults_of_the_long_form(drill)
    drill.clients.end()
    outages = drill.outages()
    _tell(outages, record_property)

    _check_all_there_once(drill.services, drill.clients)
    _check_whole(drill, tmp_path)
    if LONG:
        _check_goals(outages)


def _faults_of_the_long_form(drill: Drill) -> None:
    cluster = drill.cluster
    drill.fault("signer killed", drill.kill_signer)
    drill.fault("recorder killed", drill.kill_recorder)
    drill.fault("client killed", drill.kill_client)

    cluster.wait_until_whole()
    first = cluster.leader()
    drill.fault("primary's host killed", lambda: cluster.kill(first))
    cluster.start(first)
    drill.fault("it is back", cluster.wait_until_whole)

    first = cluster.leader()
    drill.fault("primary's host frozen", lambda: cluster.freeze(first))
    drill.fault("it is resumed", lambda: cluster.resume(first))
    drill.fault("it follows", cluster.wait_until_whole)

    second = cluster.synchronous()
    drill.fault("synchronous standby frozen", lambda: cluster.freeze(second))
    cluster.resume(second)
    cluster.wait_until_whole()
    # For longer than a primary lasts that etcd has not heard of.
    drill.fault("etcd killed", lambda: cluster.without_etcd(25))
    cluster.wait_until_whole()


def _check_all_there_once(services: Services, clients: Clients) -> None:
    """Each answer is true of what is stored now, and what nobody was told of is the last request
    of a client that was killed."""
    killed = {each.name: len(each.answers) for each in clients.all if each.was_killed}
    for run_id in clients.shared:
        lines = b"".join(services.journal.read_journal(run_id)).splitlines()
        rows = [(row["client"], row["n"]) for row in map(json.loads, lines)]
        told = {
            answer.told["index"]: (client.name, answer.n)
            for client in clients.of("append")
            if client.run_id == run_id
            for answer in client.answers
        }
        assert [rows[index] for index in told] == list(told.values())
        assert max(Counter(rows).values()) == 1
        assert set(rows) - set(told.values()) <= set(killed.items())
    for client in clients.of("seal"):
        for answer in client.answers:
            run = services.journal.get_run(answer.told["run_id"])
            assert (run.row_count, answer.told["rows"]) == (1, 1)


def _check_whole(drill: Drill, tmp_path: Path) -> None:
    """Every chain verifies: here, and exported without any service."""
    services, clients = drill.services, drill.clients
    recorded = [each.run_id for each in clients.of("record")]
    for run_id in clients.shared:
        services.journal.finish_run(run_id)
        # It read all rows through the journal; clients that follow no plan have none to re-derive.
        assert services.rederiver.rederive_run(run_id).reason_code == "plan_missing"
    sealed = [
        answer.told["run_id"] for client in clients.of("seal") for answer in client.answers[-3:]
    ]
    for run_id in (*clients.shared, *sealed):
        found = services.journal.verify_run(run_id)
        assert (found.chain_consistent, found.identity, found.findings) == (True, "verified", ())
        _bernstein(drill.project, "admin", "export", run_id, str(tmp_path / "exported"))
        _bernstein(
            drill.project, "replay", run_id, "--verify", "--offline",
            "--sdd-dir", str(tmp_path / "exported"),
        )  # fmt: skip
    for client, run_id in zip(clients.of("record"), recorded, strict=True):
        _bernstein(drill.project, "admin", "export", run_id, str(tmp_path / "exported"))
        calls = tmp_path / "exported" / "runs" / run_id / "llm_calls.jsonl"
        kept = [json.loads(line)["response"] for line in calls.read_bytes().splitlines()]
        assert kept == [answer.told["text"] for answer in client.answers]


def _bernstein(project: Project, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=project.folder,
        env=dict(project.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


def _tell(outages: list[Outage], record_property: Callable[[str, object], None]) -> None:
    """In the summary of the tests, and as JSON where BERNSTEIN_TEST_OUTAGES says."""
    record_property("outages", [asdict(each) for each in outages])
    where = os.environ.get("BERNSTEIN_TEST_OUTAGES")
    if where:
        Path(where).parent.mkdir(parents=True, exist_ok=True)
        Path(where).write_text(json.dumps([asdict(each) for each in outages], indent=1) + "\n")


def _check_goals(outages: list[Outage]) -> None:
    for each in outages:
        host = "host" in each.fault or "standby" in each.fault
        goal = HOST_GOAL_SECONDS if host else POSTGRES_GOAL_SECONDS
        assert max(each.append_seconds, each.record_seconds, each.seal_seconds) <= goal, each


def _place(host: ServiceHost) -> str:
    return f"{HOST}:{host.endpoint.base_port}"
