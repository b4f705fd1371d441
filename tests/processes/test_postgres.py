"""Services on PostgreSQL: what they answered is there after any crash, once, whoever serves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Project
from tests.postgres_server import OWNER, PostgresServer

from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows
from bernstein_formats.errors import RunSealed
from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, to be killed."""
    made = PostgresServer()
    yield made
    made.remove()


def on_postgres(project: Project, url: str, **more: str) -> Project:
    settings = {"BERNSTEIN_SVC_STORE_URL": url, "BERNSTEIN_SVC_STORE_ORIGIN": "fleet:demo", **more}
    return replace(project, environ={**project.environ, **settings})


@contextmanager
def beside(project: Project, name: str) -> Iterator[Project]:
    """Another host's project on the same database: folder, home and services of its own."""
    folder = project.folder.with_name(name)
    (folder / ".sdd").mkdir(parents=True)
    home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    made = Project(folder, {**project.environ, **home})
    try:
        yield made
    finally:
        with made.services() as services:
            services.supervisor.ask({"do": "stop"})


@pytest.fixture
def fleet(project: Project, postgres: PostgresServer) -> Project:
    return on_postgres(project, postgres.database())


def bernstein(project: Project, *arguments: str, **environ: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=project.folder,
        env={**project.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done


def files_in(folder: Path) -> dict[str, bytes]:
    """What is a run's of a state folder."""
    found = [path for top in ("runs", "lineage") for path in (folder / top).rglob("*")]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in found
        if path.is_file() and not path.name.startswith(".")
    }


def rows_of(services: Services, run_id: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in b"".join(services.journal.read_journal(run_id)).splitlines()
    ]


def pid_of(services: Services, name: str) -> int:
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    pids: dict[str, int] = {each["service"]: each["pid"] for each in status["services"]}
    return pids[name]


class Producers:
    """Callers that append, each one event at a time, and note what they were told."""

    def __init__(self, run_id: str, services: list[Services], count: int) -> None:
        self.answered = 0
        self._stop = threading.Event()
        self._run_id = run_id
        self._pool = ThreadPoolExecutor(count)
        self._done: list[Future[list[tuple[int, int, int]]]] = [
            self._pool.submit(self._work, number, services[number % len(services)])
            for number in range(count)
        ]

    def _work(self, producer: int, services: Services) -> list[tuple[int, int, int]]:
        told = []
        for number in range(100_000):
            if self._stop.is_set():
                break
            payload = {"p": producer, "n": number}
            index = services.journal.append(self._run_id, "x", payload).first_index
            told.append((index, producer, number))
            self.answered += 1
        return told

    def wait_for(self, count: int) -> None:
        """Until so many more appends were answered."""
        goal, give_up = self.answered + count, time.monotonic() + 60
        while self.answered < goal:
            assert time.monotonic() < give_up, "appends do not go on"
            time.sleep(0.01)

    def told(self) -> list[tuple[int, int, int]]:
        """All answers; raises what a caller got instead."""
        self._stop.set()
        self._pool.shutdown()
        return sorted(each for done in self._done for each in done.result())


def assert_all_there_once(
    services: Services, run_id: str, told: list[tuple[int, int, int]]
) -> None:
    rows = rows_of(services, run_id)
    assert [(index, row["p"], row["n"]) for index, row in enumerate(rows)] == told
    found = services.journal.verify_run(run_id)
    assert (found.chain_consistent, found.coverage) == (True, "complete")


def test_a_recorded_run_is_replayed_verified_and_signed_with_no_file_of_it_on_the_host(
    fleet: Project,
) -> None:
    copy_example(fleet.folder)
    with ModelServer() as model:
        keys = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": model.base_url}
        seed = {"BERNSTEIN_DETERMINISTIC_SEED": "42"}
        ran = bernstein(fleet, "run", "plan.yaml", "--json", **seed, **keys)
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(ran.stdout)["run_id"]

    replayed = bernstein(fleet, "run", "plan.yaml", "--json", BERNSTEIN_REPLAY_RUN_ID=run_id)
    verified = bernstein(fleet, "replay", run_id, "--verify", "--json")
    derived = bernstein(fleet, "replay", run_id, "--re-derive", "--json")
    bernstein(fleet, "keys", "new", "key.pem")
    signed = bernstein(fleet, "verify", "run", run_id, "--signing-key-path", "key.pem")
    exported = bernstein(fleet, "admin", "export", run_id, "out")
    receipt = f"out/runs/{run_id}/run-receipt.json"
    checked = bernstein(fleet, "verify", "receipt", receipt, "--public-key", "key.pub.pem")

    for done in (replayed, verified, derived, signed, exported, checked):
        assert done.returncode == 0, done.args + done.stderr
    assert json.loads(verified.stdout)["identity"] == "verified"
    assert files_in(fleet.sdd) == {}


def test_a_run_goes_into_a_database_and_comes_out_byte_for_byte(
    project: Project, postgres: PostgresServer
) -> None:
    copy_example(project.folder)
    with ModelServer() as model:
        keys = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": model.base_url}
        seed = {"BERNSTEIN_DETERMINISTIC_SEED": "42"}
        ran = bernstein(project, "run", "plan.yaml", "--json", **seed, **keys)
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(ran.stdout)["run_id"]
    before = files_in(project.sdd)
    assert f"runs/{run_id}/llm_calls.jsonl" in before

    with beside(on_postgres(project, postgres.database()), "fleet") as fleet:
        taken = bernstein(fleet, "admin", "import", str(project.folder), "--json")
        again = bernstein(fleet, "admin", "import", str(project.folder), "--run", run_id)
        given = bernstein(fleet, "admin", "export", "latest", "out", "--json")
        refused = bernstein(fleet, "admin", "export", run_id, "out")
        verified = bernstein(fleet, "replay", run_id, "--verify", "--json")

        assert files_in(fleet.folder / "out") == before
    assert (taken.returncode, given.returncode, verified.returncode) == (0, 0, 0)
    assert json.loads(taken.stdout)["runs"][0]["new_files"] == len(before)
    assert again.stdout.endswith("0 of them new\n")
    assert (refused.returncode, "RUN_EXISTS" in refused.stderr) == (1, True)
    assert json.loads(verified.stdout)["chain_consistent"]


def test_a_run_with_other_bytes_under_its_id_is_refused_and_nothing_is_replaced(
    fleet: Project, tmp_path: Path
) -> None:
    other = tmp_path / "other" / ".sdd" / "runs" / "r1"
    other.mkdir(parents=True)
    (other / "metadata.json").write_bytes(b"{}")
    with fleet.services() as services:
        services.journal.create_run("r1", metadata=b'{"mine": 1}')
        services.journal.append("r1", "x", {})
        done = bernstein(fleet, "admin", "import", str(tmp_path / "other"))
        pieces = list(services.copies.export_run("r1"))

    assert (done.returncode, "RUN_EXISTS" in done.stderr) == (1, True)
    assert ("runs/r1/metadata.json", b'{"mine": 1}') in pieces


def test_a_killed_journal_loses_nothing_that_was_answered(fleet: Project) -> None:
    with fleet.services() as services:
        run_id = services.journal.create_run()
        producers = Producers(run_id, [services], 8)
        for _ in range(3):
            producers.wait_for(40)
            with suppress(ProcessLookupError, KeyError):
                os.kill(pid_of(services, "journal"), signal.SIGKILL)
        producers.wait_for(40)

        assert_all_there_once(services, run_id, producers.told())


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_database_that_ends_and_comes_back_loses_nothing_and_callers_go_on(
    project: Project, server: PostgresServer, mode: str
) -> None:
    fleet = on_postgres(project, server.database())
    with fleet.services() as services:
        run_id = services.journal.create_run()
        producers = Producers(run_id, [services], 8)
        for _ in range(2):
            producers.wait_for(40)
            server.stop(mode)
            server.start()
        producers.wait_for(40)

        assert_all_there_once(services, run_id, producers.told())
        assert services.journal.finish_run(run_id).row_count == len(rows_of(services, run_id))

    lines = [line for path in logs_of(fleet) for line in path.read_text().splitlines()]
    assert {json.loads(line)["event"] for line in lines} >= {"connection_lost", "database_library"}


def test_journals_of_several_hosts_serve_one_run_and_never_fork_it(fleet: Project) -> None:
    with (
        beside(fleet, "second") as other,
        fleet.services() as first,
        other.services() as second,
        ThreadPoolExecutor(1) as pool,
    ):
        run_id = first.journal.create_run()
        second.supervisor.ensure("journal")
        producers = Producers(run_id, [first, second], 8)
        producers.wait_for(10)
        following = pool.submit(_followed, first, run_id)
        producers.wait_for(100)
        os.kill(pid_of(second, "journal"), signal.SIGKILL)
        producers.wait_for(100)
        told = producers.told()

        assert_all_there_once(first, run_id, told)
        assert_all_there_once(second, run_id, told)
        first.journal.finish_run(run_id)
        with pytest.raises(RunSealed):
            second.journal.append(run_id, "late", {})
        assert following.result(60) == [index for index, *_ in told]


def _followed(services: Services, run_id: str) -> list[int]:
    """The rows that a follower was shown until the run was sealed."""
    return [
        item.first_index + number
        for item in services.journal.watch_rows(run_id)
        if isinstance(item, WatchedRows)
        for number in range(len(item.lines))
    ]


def test_an_operator_makes_the_tables_and_doctor_tells_what_services_find(
    project: Project, postgres: PostgresServer
) -> None:
    name = "made_by_hand"
    postgres.execute(f"create database {name} owner {OWNER}")
    url = postgres.url(name)
    (project.sdd / "svc").mkdir()
    (project.sdd / "svc" / "bernstein.toml").write_text(f'[store]\nurl = "{url}"\n')

    before = bernstein(project, "services", "doctor")
    refused = bernstein(project, "services", "start", "journal")
    made = bernstein(project, "admin", "migrate", "--owner", OWNER, "--json")
    again = bernstein(project, "admin", "migrate", "--owner", OWNER)
    after = bernstein(project, "services", "doctor")

    assert before.returncode == refused.returncode == 1
    assert "bad  store: " in before.stdout
    for text in (before.stdout, refused.stderr):
        assert "run `bernstein admin migrate`" in text
    assert json.loads(made.stdout)["applied"] == ["0001_contents.sql"]
    assert again.stdout.count("\n") == 1
    assert f"ok   store: postgresql://{postgres.folder}/{name}, origin " in after.stdout
    assert bernstein(project, "services", "start", "journal", "recorder").returncode == 0


def test_a_password_is_in_no_log_no_argument_and_no_environment(
    fleet: Project, tmp_path: Path
) -> None:
    word = "hunter2-hunter2"
    file = tmp_path / "password"
    file.write_text(word)
    file.chmod(0o600)
    secret = replace(
        fleet,
        environ={**fleet.environ, "BERNSTEIN_SVC_STORE_PASSWORD_FILE": str(file)},
    )
    with secret.services() as services:
        services.journal.create_run("r1")
        pid = pid_of(services, "journal")
        for name in ("cmdline", "environ"):
            assert word.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    doctor = bernstein(secret, "services", "doctor")
    assert doctor.returncode == 0
    told = [doctor.stdout, doctor.stderr, *(path.read_text() for path in logs_of(secret))]
    assert not any(word in text for text in told)


def logs_of(project: Project) -> Iterator[Path]:
    return (project.sdd / "svc" / "logs").iterdir()
