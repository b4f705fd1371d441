"""Real services for tests: each project has a home, a state folder and processes of its own."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bernstein_client.connection import Services


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


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose services, if any were started, are ended afterwards."""
    folder = tmp_path / "project"
    (folder / ".sdd").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": "/tmp",  # noqa: S108 - socket paths must be short
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
    }
    made = Project(folder, environ)
    yield made
    with made.services() as services:
        services.supervisor.ask({"do": "stop"})


@pytest.fixture
def services(project: Project) -> Iterator[Services]:
    """The services of a fresh project."""
    with project.services() as connected:
        yield connected
