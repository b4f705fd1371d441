"""Real services for tests: each project has a home, a state folder and processes of its own."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.postgres_server import PostgresServer

from bernstein_client.connection import Services

# The search for secrets compiles its rules once, not once a test.
RULE_CACHE = Path(tempfile.gettempdir()) / "bernstein-test-rules"
os.environ.setdefault("KF_RULE_CACHE_DIR", str(RULE_CACHE))


# Whoever started the tests may have told them to ignore it (nohup), and children inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass(frozen=True)
class Project:
    """A project folder with its own home, so that nothing is shared with another test."""

    folder: Path
    environ: Mapping[str, str]

    @property
    def sdd(self) -> Path:
        return self.folder / ".sdd"

    def services(self) -> Services:
        return Services(self.sdd, self.environ)


def environ_of(home: Path) -> dict[str, str]:
    """All that a user's programs need."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": "/tmp",  # noqa: S108 - socket paths must be short
        "KF_RULE_CACHE_DIR": os.environ["KF_RULE_CACHE_DIR"],
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
    }


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose services, if any were started, are ended afterwards."""
    folder = tmp_path / "project"
    (folder / ".sdd").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    made = Project(folder, environ_of(tmp_path / "home"))
    yield made
    with made.services() as services:
        services.supervisor.ask({"do": "stop"})


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of this process that want one."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def services(project: Project) -> Iterator[Services]:
    """The services of a fresh project."""
    with project.services() as connected:
        yield connected


@pytest.fixture
def gateway_url(services: Services) -> Callable[[str], str]:
    """Starts the gateway; gives the address of a run's page, with the key in it."""
    services.supervisor.ensure("gateway")
    facts = json.loads((services.places.runtime_dir / "gateway.json").read_bytes())
    return lambda run_id: f"{facts['url']}/runs/{run_id}?token={facts['token']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests of failover end with how long each outage lasted."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, outages in report.user_properties:
            if name == "outages":
                terminalreporter.section("longest wait of any client, by fault")
                for each in outages:
                    terminalreporter.line(
                        f"{each['fault']:32} append {each['append_seconds']:6.2f} s"
                        f"   record {each['record_seconds']:6.2f} s"
                        f"   seal {each['seal_seconds']:6.2f} s"
                    )
