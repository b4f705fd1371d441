"""`bernstein services doctor --fleet`: what an operator is told of services on other hosts."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Project
from tests.fleet import HOST, Fleet, ServiceHost, fleet_in

from bernstein_runtime import VERSION

pytestmark = pytest.mark.processes
ORIGIN = "fleet:demo"
GRANTS = """
[[grant]]
caller = "one"
role = "service"
origins = ["*"]
runs = ["*"]

[[grant]]
caller = "operator"
role = "operator"
origins = ["*"]
runs = ["*"]

[[grant]]
caller = "writer"
role = "writer"
origins = ["*"]
runs = ["*"]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path / "fleet", BERNSTEIN_SVC_FLEET_ORIGIN=ORIGIN) as made:
        made.roles.write_text(GRANTS)
        yield made


@pytest.fixture
def host(fleet: Fleet) -> ServiceHost:
    made = fleet.host("one")
    fleet.authority.issue("one", HOST, lasts=timedelta(days=10))
    made.start("journal", "recorder", "rederiver", "signer")
    return made


def doctor(project: Project, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", "services", "doctor", "--fleet", *more],
        cwd=project.folder,
        env=dict(project.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def checks_of(ran: "subprocess.CompletedProcess[str]", word: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(ran.stdout)["checks"] if word in each["name"]]


def test_a_fleet_that_is_well_is_told_service_by_service(fleet: Fleet, host: ServiceHost) -> None:
    operator = fleet.client("operator", host)
    with operator.services() as services:
        run_id = services.journal.create_run()
        services.journal.append(run_id, "x", {})
        services.journal.finish_run(run_id)
    ran = doctor(operator, "--json")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["ok"] is True
    for service in ("journal", "recorder", "rederiver", "signer"):
        ready, version, clock, certificate = checks_of(ran, f"{service} at ")
        assert ready["seen"].startswith("ready")
        assert version["seen"] == VERSION
        assert clock["seen"].startswith("0.")
        assert certificate["seen"].endswith("days left")
    assert "store files" in checks_of(ran, "journal at ")[0]["seen"]
    assert "ledger_entries 1" in checks_of(ran, "signer at ")[0]["seen"]
    assert [each["seen"] for each in checks_of(ran, "one store")] == ["files"]
    assert not operator.sdd.exists()


def test_what_is_wrong_is_named_and_the_exit_code_says_so(fleet: Fleet, host: ServiceHost) -> None:
    host.kill("recorder")
    runs = host.folder / "runs"
    if runs.is_dir():
        runs.rmdir()
    runs.write_text("not a folder")
    operator = fleet.client("operator", host)
    give_up = time.monotonic() + 60
    while "STORE_FAILED" not in (ran := doctor(operator)).stdout:  # noticed within seconds
        assert time.monotonic() < give_up, ran.stdout

    assert ran.returncode == 1
    bad = [line for line in ran.stdout.splitlines() if line.startswith("bad")]
    assert any("recorder at 127.0.0.1" in line and "UNAVAILABLE" in line for line in bad)
    assert any("journal at 127.0.0.1" in line and "STORE_FAILED" in line for line in bad)
    assert len(bad) == 2


def test_a_certificate_is_asked_for_before_it_ends(fleet: Fleet, host: ServiceHost) -> None:
    operator = fleet.client("operator", host)
    fleet.authority.issue("one", HOST, lasts=timedelta(days=1))
    ran = doctor(operator, "--json")

    assert ran.returncode == 1
    bad = [each for each in json.loads(ran.stdout)["checks"] if not each["ok"]]
    assert [each["seen"] for each in bad] == ["1.0 days left"] * 4


def test_it_is_for_operators(fleet: Fleet, host: ServiceHost) -> None:
    ran = doctor(fleet.client("writer", host), "--json")

    assert ran.returncode == 1
    assert {each["seen"][-20:] for each in checks_of(ran, " at ")} == {"[CALLER_NOT_ALLOWED]"}


def test_without_a_fleet_there_is_nothing_to_ask(project: Project) -> None:
    ran = doctor(project, "--json")

    assert (ran.returncode, json.loads(ran.stdout)["error"]) == (1, "INVALID_INPUT")
