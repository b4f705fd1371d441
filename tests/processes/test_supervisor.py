"""The supervisor: one a project, starts on demand, restarts what dies, ends when idle."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_client.connection import Services
from bernstein_formats.errors import InvalidInput, StoreFailed, Unavailable
from bernstein_runtime.supervisor import scrubbed

pytestmark = pytest.mark.processes


def running(services: Services) -> dict[str, int]:
    status = services.supervisor.ask({"do": "status"})
    return {each["service"]: each["pid"] for each in status["services"]} if status else {}


def wait_until(condition, seconds: float = 15.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come to pass"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_services_start_when_they_are_needed_and_only_those(services: Services) -> None:
    assert services.supervisor.ask({"do": "status"}) is None

    services.journal.create_run()

    assert set(running(services)) == {"journal"}


def test_clients_that_start_at_once_share_one_supervisor(project) -> None:
    def start(_: int) -> int:
        with project.services() as services:
            services.journal.create_run()
            return running(services)["journal"]

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(start, range(6)))) == 1


def test_a_service_that_dies_is_started_again(services: Services) -> None:
    services.journal.create_run()
    first = running(services)["journal"]

    os.kill(first, signal.SIGKILL)
    wait_until(lambda: running(services).get("journal", first) != first)

    assert services.journal.create_run()


def test_a_killed_supervisor_is_replaced_and_its_services_are_taken_over(project) -> None:
    with project.services() as services:
        services.journal.create_run("r1")
        supervisor = services.supervisor.ask({"do": "status"})["pid"]
        old_journal = running(services)["journal"]
        os.kill(supervisor, signal.SIGKILL)
    with project.services() as services:
        assert services.journal.create_run("r2") == "r2"
        assert services.journal.append("r1", "x", {}).first_index == 0
        wait_until(lambda: not is_alive(old_journal))


def test_idle_services_end_and_come_back(project) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_SUPERVISOR_IDLE_SECONDS": "0.6"}
    with replace(project, environ=environ).services() as services:
        run_id = services.journal.create_run()
        journal = running(services)["journal"]
        wait_until(lambda: not is_alive(journal))
        wait_until(lambda: not services.places.socket("supervisor").exists())

        assert services.journal.append(run_id, "x", {}).first_index == 0


def test_stop_ends_everything(services: Services) -> None:
    services.journal.create_run()
    pids = running(services).values()

    services.supervisor.ask({"do": "stop"})

    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    wait_until(lambda: services.supervisor.ask({"do": "status"}) is None)


def test_sigterm_finishes_what_was_taken(services: Services) -> None:
    run_id = services.journal.create_run()
    with ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(services.journal.append, run_id, "x", {"n": n}) for n in range(200)]
        os.kill(running(services)["journal"], signal.SIGTERM)
        indexes = sorted(future.result().first_index for future in pending)

    assert indexes == list(range(200))


def test_a_supervisor_of_another_version_gives_way(services: Services) -> None:
    services.journal.create_run()
    before = running(services)["journal"]

    answer = services.supervisor.ask({"do": "start", "service": "journal", "version": "0.0.1"})

    assert answer == {"ok": False, "retry": True}
    wait_until(lambda: not is_alive(before))
    assert services.journal.create_run()


def test_a_service_that_cannot_start_says_why(project) -> None:
    (project.sdd / "svc").mkdir()
    (project.sdd / "svc" / "bernstein.toml").write_text("[recorder]\nnonsense = 1\n")

    with project.services() as services, pytest.raises(Unavailable, match="no setting 'nonsense'"):
        services.recorder.get_recording("r1")


def test_a_missing_state_folder_is_not_made(project, tmp_path: Path) -> None:
    with (
        Services(tmp_path / "nowhere", project.environ) as services,
        pytest.raises(InvalidInput, match="is not a folder"),
    ):
        services.journal.create_run()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(project) -> None:
    project.sdd.chmod(0o500)
    with project.services() as services, pytest.raises(StoreFailed, match="--offline"):
        services.journal.create_run()
    project.sdd.chmod(0o700)


def test_services_see_no_key_and_none_of_the_peers_variables(project) -> None:
    environ = {
        **project.environ,
        "OPENAI_API_KEY": "k",
        "BERNSTEIN_REPLAY_RUN_ID": "r",
        "BERNSTEIN_SVC_SUPERVISOR_IDLE_SECONDS": "60",
    }
    with replace(project, environ=environ).services() as services:
        services.journal.create_run()
        seen = Path(f"/proc/{running(services)['journal']}/environ").read_bytes()

    names = {entry.split(b"=")[0] for entry in seen.split(b"\0") if entry}
    assert b"BERNSTEIN_SVC_SUPERVISOR_IDLE_SECONDS" in names
    assert not names & {b"OPENAI_API_KEY", b"BERNSTEIN_REPLAY_RUN_ID"}
    assert "OPENAI_API_KEY" not in scrubbed(environ)
