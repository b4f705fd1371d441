"""The supervisor: one a project, starts on demand, restarts what dies, ends when idle."""

import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.suspended import suspend

from bernstein_client.connection import Services
from bernstein_formats.errors import DiskFull, InvalidInput, StoreFailed, Unavailable
from bernstein_runtime.lock import LockFile
from bernstein_runtime.supervisor import scrubbed

pytestmark = pytest.mark.processes


def running(services: Services) -> dict[str, int]:
    status = services.supervisor.ask({"do": "status"})
    return {each["service"]: each["pid"] for each in status["services"]} if status else {}


def supervisor_pid(services: Services) -> int:
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    return int(status["pid"])


def do_answer(services: Services) -> list[bool]:
    """Whether each running service answers, as the supervisor says."""
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    return [service["answers"] for service in status["services"]]


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
        supervisor = supervisor_pid(services)
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
    assert pids
    assert not services.places.socket("journal").exists()


def test_sigterm_finishes_what_was_taken(services: Services) -> None:
    run_id = services.journal.create_run()
    with ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(services.journal.append, run_id, "x", {"n": n}) for n in range(200)]
        os.kill(running(services)["journal"], signal.SIGTERM)
        indexes = sorted(future.result().first_index for future in pending)

    assert indexes == list(range(200))


@pytest.mark.parametrize("version", ["99.0.0", "0.2.0rc1", ""])
def test_a_supervisor_gives_way_to_a_command_of_a_newer_version(
    services: Services, version: str
) -> None:
    services.journal.create_run()
    before = running(services)["journal"]

    answer = services.supervisor.ask({"do": "start", "service": "journal", "version": version})

    assert answer == {"ok": False, "retry": True}
    wait_until(lambda: not is_alive(before))
    assert services.journal.create_run()


def test_a_command_of_the_release_before_is_served(services: Services) -> None:
    """Two releases that work side by side do not end each other's services."""
    services.journal.create_run()
    before = running(services)

    answer = services.supervisor.ask({"do": "start", "service": "journal", "version": "0.0.9"})

    assert answer == {"ok": True}
    assert running(services) == before


def test_a_service_that_cannot_start_says_why(project) -> None:
    (project.sdd / "svc").mkdir()
    (project.sdd / "svc" / "bernstein.toml").write_text("[recorder]\nnonsense = 1\n")

    with project.services() as services, pytest.raises(InvalidInput, match="no setting 'nonsense'"):
        services.recorder.get_recording("r1")


@contextmanager
def full_disk() -> Iterator[None]:
    """Nothing that is started within can put a byte into a file (EFBIG, as ENOSPC a DiskFull)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_refusal_arrives_although_no_log_can_be_written(project) -> None:
    config = project.sdd / "svc" / "bernstein.toml"
    config.parent.mkdir()
    for text, service in (
        ("[recorder]\nodd = 1\n", "recorder"),
        ("[supervisor]\nodd = 1\n", "journal"),
    ):
        config.write_text(text)
        with (
            full_disk(),
            project.services() as services,
            pytest.raises(InvalidInput, match="no setting 'odd'"),
        ):
            services.supervisor.ensure(service)
        services.supervisor.ask({"do": "stop"})


def test_a_full_disk_is_named_at_once_and_ends_nothing(project) -> None:
    with full_disk(), project.services() as services:
        with pytest.raises(DiskFull, match="make room"):
            services.journal.create_run()
        assert set(running(services)) == {"journal"}
        assert services.journal.list_runs() is not None


def test_a_supervisor_that_cannot_start_says_why_itself(project) -> None:
    (project.sdd / "svc").write_text("a file")

    with project.services() as services:
        with pytest.raises(StoreFailed, match="cannot write below"):
            services.journal.create_run()
        assert not services.places.runtime_dir.exists()


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


@pytest.fixture
def other_runtime() -> Iterator[str]:
    """A runtime folder that has a short name."""
    with tempfile.TemporaryDirectory(prefix="other") as folder:
        yield folder


def test_commands_with_another_runtime_folder_use_the_same_services(
    services: Services, project, other_runtime: str
) -> None:
    run_id = services.journal.create_run()
    environ = {**project.environ, "XDG_RUNTIME_DIR": other_runtime}
    with replace(project, environ=environ).services() as others:
        assert others.journal.append(run_id, "x", {}).first_index == 0
        assert running(others) == running(services)
        assert others.places == services.places

        others.supervisor.ask({"do": "stop"})
    wait_until(lambda: services.supervisor.ask({"do": "status"}) is None)


def test_a_client_follows_services_that_were_started_elsewhere_meanwhile(
    services: Services, project, other_runtime: str
) -> None:
    environ = {**project.environ, "XDG_RUNTIME_DIR": other_runtime}
    with replace(project, environ=environ).services() as others:
        run_id = others.journal.create_run()

        assert services.journal.append(run_id, "x", {}).first_index == 0
        assert services.places.runtime_root == Path(other_runtime)
        services.supervisor.ask({"do": "stop"})


def test_services_that_cannot_be_reached_are_named_at_once(
    services: Services, project, other_runtime: str
) -> None:
    environ = {**project.environ, "XDG_RUNTIME_DIR": f"{other_runtime}/x"}
    with replace(project, environ=environ).services() as others:
        others.journal.create_run()
        supervisor = supervisor_pid(others)
        suspend(supervisor)
        hidden = Path(other_runtime, "x").rename(Path(other_runtime, "hidden"))
        began = time.monotonic()
        for ask in (
            lambda: services.supervisor.ensure("journal"),
            lambda: services.supervisor.ask({"do": "stop"}),
        ):
            with pytest.raises(Unavailable, match="cannot be reached from here"):
                ask()
        assert time.monotonic() - began < 6
        os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: state_of(supervisor) in "ZX")  # nobody could find it
        assert hidden.is_dir()
        assert services.journal.create_run()


def test_a_removed_state_folder_ends_what_served_it(services: Services, project) -> None:
    services.journal.create_run("r1")
    former = {*running(services).values(), supervisor_pid(services)}
    shutil.rmtree(project.sdd)
    project.sdd.mkdir()

    with project.services() as again:
        assert again.journal.create_run("r1") == "r1"
        assert (project.sdd / "runs" / "r1").is_dir()
        wait_until(lambda: all(state_of(pid) in "ZX" for pid in former))
        assert not former & set(running(again).values())


def test_services_of_a_removed_state_folder_end_by_themselves(services: Services, project) -> None:
    services.journal.create_run()
    journal = running(services)["journal"]
    supervisor = supervisor_pid(services)
    suspend(supervisor)
    shutil.rmtree(project.sdd)

    wait_until(lambda: state_of(journal) in "ZX")
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: not is_alive(supervisor))
    wait_until(lambda: not services.places.runtime_dir.exists())
    assert not project.sdd.exists()  # nothing was made again on the way out
    project.sdd.mkdir()


def state_of(pid: int) -> str:
    """R, S, T …; X when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_the_end_leaves_no_runtime_folder(services: Services) -> None:
    services.journal.create_run()
    os.kill(running(services)["journal"], signal.SIGKILL)  # it leaves its socket

    services.supervisor.ask({"do": "stop"})

    wait_until(lambda: not services.places.runtime_dir.exists())
    assert not (services.places.state_dir / "supervisor.json").exists()


def test_sockets_in_a_folder_that_others_can_write_to_are_refused(project, other_runtime) -> None:
    environ = {**project.environ, "XDG_RUNTIME_DIR": other_runtime}
    with replace(project, environ=environ).services() as services:
        services.journal.create_run()
        folder = services.places.runtime_dir.parent
        folder.chmod(0o777)
        with pytest.raises(InvalidInput, match="other users may write"):
            services.supervisor.ask({"do": "status"})
        folder.chmod(0o700)
        services.supervisor.ask({"do": "stop"})


def test_all_that_is_made_is_private(services: Services) -> None:
    services.journal.create_run()

    places = services.places
    private = [
        places.runtime_root,
        places.runtime_dir.parent,
        places.runtime_dir,
        *places.logs_dir.iterdir(),
        places.state_dir / "supervisor.json",
    ]
    assert [path for path in private if path.stat().st_mode & 0o077] == []


def test_a_service_that_was_suspended_is_named_with_advice(services: Services, project) -> None:
    services.journal.create_run()
    journal = running(services)["journal"]
    suspend(journal)
    try:
        with project.services() as others, pytest.raises(Unavailable, match=f"-CONT {journal}"):
            others.journal.list_runs()
        assert do_answer(services) == [False]
    finally:
        os.kill(journal, signal.SIGCONT)
    assert do_answer(services) == [True]


def test_a_service_that_is_killed_while_it_starts_is_started_again(services: Services) -> None:
    services.supervisor.ensure("rederiver")
    supervisor, others = supervisor_pid(services), set(running(services).values())
    lock = LockFile(services.places.state_dir / "journal.lock")
    lock.acquire()  # the journal waits for it, and does not serve yet
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(services.supervisor.ensure, "journal")
        wait_until(lambda: set(children_of(supervisor)) - others)
        (journal,) = set(children_of(supervisor)) - others
        os.kill(journal, signal.SIGKILL)
        lock.release()
        starting.result()

    assert running(services)["journal"] != journal


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
