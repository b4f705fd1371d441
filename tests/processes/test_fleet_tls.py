"""Services of a fleet: reached over mutual TLS by those with a certificate, and by no others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.fleet import Authority, Fleet, ServiceHost, fleet_in

from bernstein_formats.errors import (
    BernsteinError,
    KeyUnusable,
    RunNotFound,
    Unavailable,
    Untrusted,
)

pytestmark = pytest.mark.processes
# The origin of files; its own, so that clients name it.
ORIGIN = {"BERNSTEIN_SVC_FLEET_ORIGIN": "fleet:demo"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path / "fleet", **ORIGIN) as made:
        yield made


@pytest.fixture
def host(fleet: Fleet) -> ServiceHost:
    made = fleet.host("one")
    made.start("journal", "signer")
    return made


def refused(project: Project) -> BernsteinError:
    with project.services() as services, pytest.raises(BernsteinError) as raised:
        services.journal.create_run()
    assert "\n" not in raised.value.message
    return raised.value


def test_a_client_with_a_certificate_appends_and_seals_on_other_hosts(
    fleet: Fleet, host: ServiceHost
) -> None:
    client = fleet.client("writer", host)
    with client.services() as services:
        run_id = services.journal.create_run()
        services.journal.append(run_id, "x", {"n": 1})
        finished = services.journal.finish_run(run_id)
        found = services.journal.verify_run(run_id)

    assert (finished.row_count, found.identity) == (1, "verified")
    assert not client.sdd.exists()
    assert '"caller": "writer"' in host.log("journal")
    assert '"caller": "one"' in host.log("signer")


def test_each_fault_of_a_certificate_is_told_in_one_line(
    fleet: Fleet, host: ServiceHost, tmp_path: Path
) -> None:
    client = fleet.client("writer", host)
    other = Authority(tmp_path / "other")
    where = f"journal at 127.0.0.1:{host.endpoint.base_port}"

    def having(**settings: str) -> Project:
        return replace(client, environ={**client.environ, **settings})

    ours = other.issue("writer")
    of_another_ca = having(**{**ours, "BERNSTEIN_SVC_TLS_CA_FILE": str(fleet.authority.ca)})
    trusting_another_ca = having(BERNSTEIN_SVC_TLS_CA_FILE=str(other.ca))
    expired = having(**fleet.authority.issue("late", lasts=timedelta(hours=-1)))
    by_name = having(BERNSTEIN_SVC_ENDPOINT=f"localhost:{host.endpoint.base_port}")
    without = dict.fromkeys(ours, "")

    for project, words in (
        (of_another_ca, "refuses our certificate"),
        (of_another_ca, "it is of another CA than"),
        (trusting_another_ca, "is not trusted: its certificate is of another CA than"),
        (expired, "refuses our certificate"),
        (expired, "it has expired"),
        (by_name, "its certificate is not for localhost"),
    ):
        error = refused(project)
        assert isinstance(error, Untrusted), error.message
        assert words in error.message
        assert error.message.startswith(
            where.replace("127.0.0.1", "localhost") if project is by_name else where
        )
    in_the_clear = refused(having(**without))
    assert isinstance(in_the_clear, Unavailable)
    assert "see whether it wants a certificate" in in_the_clear.message


def test_a_service_whose_certificate_expired_is_not_trusted(fleet: Fleet) -> None:
    late = fleet.authority.issue("late", "127.0.0.1", lasts=timedelta(hours=-1))
    host = fleet.host("one", **late)
    host.start("journal")
    error = refused(fleet.client("writer", host))

    assert isinstance(error, Untrusted)
    assert "is not trusted: its certificate has expired" in error.message


def test_a_service_that_is_away_is_named_with_its_address(fleet: Fleet) -> None:
    host = fleet.host("one")
    client = fleet.client("writer", host)
    error = refused(client)

    assert isinstance(error, Unavailable)
    place = f"journal at 127.0.0.1:{host.endpoint.base_port}"
    assert error.message == f"{place} is away: nothing listens there; start it, or see its log"


def test_certificates_are_renewed_without_a_restart_on_both_sides(
    fleet: Fleet, host: ServiceHost
) -> None:
    client = fleet.client("writer", host)
    with client.services() as services:
        run_id = services.journal.create_run()
        fleet.authority.issue("one", "127.0.0.1")
        fleet.authority.issue("writer")
        services.journal.append(run_id, "x", {})
        with client.services() as again:
            again.journal.append(run_id, "y", {})
    assert "certificate_renewed" in host.log("journal")


def test_a_key_that_is_not_the_certificates_is_refused_before_anybody_is_asked(
    fleet: Fleet, host: ServiceHost
) -> None:
    client = fleet.client("writer", host)
    other = fleet.authority.issue("other")["BERNSTEIN_SVC_TLS_KEY_FILE"]
    mixed = replace(client, environ={**client.environ, "BERNSTEIN_SVC_TLS_KEY_FILE": other})
    Path(client.environ["BERNSTEIN_SVC_TLS_KEY_FILE"]).chmod(0o640)

    assert "is not the key of" in str(refused(mixed))
    loose = refused(client)
    assert isinstance(loose, KeyUnusable)
    assert "chmod 600" in loose.message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"BERNSTEIN_SVC_LISTEN_ENDPOINT": "0.0.0.0:7431"}, "can be reached from other hosts"),
        ({"BERNSTEIN_SVC_LISTEN_ENDPOINT": "host:0"}, "is no host[:port]"),
        ({"BERNSTEIN_SVC_LISTEN_ENDPOINT": "::1"}, "is no host[:port]"),
        ({"BERNSTEIN_SVC_TLS_KEY_FILE": "/k"}, "[tls] needs certificate_file"),
    ],
)
def test_a_listener_that_others_could_reach_in_the_clear_does_not_start(
    project: Project, settings: dict[str, str], words: str
) -> None:
    listens = {"BERNSTEIN_SVC_LISTEN_ENDPOINT": "127.0.0.1:7431"}
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_journal", str(project.sdd)],
        stdin=subprocess.DEVNULL,
        env={**project.environ, **listens, **settings},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert words in done.stdout.decode()
    assert b"INVALID_INPUT" in done.stdout


def test_a_signer_on_a_port_wants_certificates_also_on_this_host(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_signer", str(project.sdd)],
        stdin=subprocess.DEVNULL,
        env={**project.environ, "BERNSTEIN_SVC_LISTEN_ENDPOINT": "127.0.0.1:7431"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"the signer listens with a certificate only" in done.stdout


def test_a_client_goes_on_with_the_next_host_when_one_dies_or_freezes(
    fleet: Fleet, tmp_path: Path
) -> None:
    first, second = fleet.host("one"), fleet.host("two")
    for each in (first, second):
        each.start("journal")
    client = fleet.client("writer", first, second)
    with client.services() as services:
        services.journal.create_run("a")
        first.kill("journal")
        # Files are each host's own, so it shows who answers.
        with pytest.raises(RunNotFound):
            list(services.journal.read_journal("a"))
        services.journal.create_run("b")
        assert (second.folder / "runs" / "b").is_dir()
        first.start("journal")
        os.kill(second.running["journal"].pid, signal.SIGSTOP)
        try:
            services.journal.append("a", "x", {})
        finally:
            os.kill(second.running["journal"].pid, signal.SIGCONT)
    assert (first.folder / "runs" / "a" / "journal.jsonl").stat().st_size
