"""A project folder with services of its own, as a user has one, and the peer's environment."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bernstein_client.connection import Services

ROOT = Path(__file__).parents[1]
PACKAGES = ("formats", "protos", "runtime", "services", "clients")
# What our code needs and the peer's environment lacks; it goes beside it, not into it.
BESIDE = ("orjson", "structlog", "tenacity")
OUR_COMMAND = Path(sys.executable).with_name("bernstein")


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """The peer's interpreter, which runs our packages too: one process, one interpreter."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "bernstein"

    def environ(self) -> dict[str, str]:
        beside = self.folder.with_name("beside")
        path = [ROOT, *(ROOT / name for name in PACKAGES), beside]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}

    def module(self, name: str, *arguments: object) -> list[str]:
        return [str(self.python), "-m", name, *map(str, arguments)]


def peer_environment() -> PeerEnvironment:
    """Made at the first time. Exits where it cannot be."""
    script = ROOT / "tests" / "interop" / "peer_environment.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(found.stderr)
    environment = PeerEnvironment(Path(found.stdout.strip()))
    wanted = [f"{name}=={version(name)}" for name in BESIDE]
    marker = environment.folder.with_name("beside.installed")
    if not (marker.exists() and marker.read_text(encoding="utf-8") == " ".join(wanted)):
        target = str(environment.folder.with_name("beside"))
        command = environment.module("pip", "install", "--quiet", "--upgrade", "--target", target)
        subprocess.run([*command, *wanted], check=True)
        marker.write_text(" ".join(wanted), encoding="utf-8")
    return environment


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a home beside it; nothing of the user's own is touched."""

    folder: Path
    environ: Mapping[str, str]

    @property
    def sdd(self) -> Path:
        return self.folder / ".sdd"

    def services(self) -> Services:
        return Services(self.sdd, self.environ)

    def stop_services(self) -> None:
        with self.services() as services:
            services.supervisor.ask({"do": "stop"})


@contextmanager
def fresh_project(folder: Path, name: str) -> Iterator[Project]:
    """Its services end with it."""
    home = folder / f"{name}-home"
    home.mkdir()
    project = Project(
        folder / name,
        {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": "/tmp",  # noqa: S108 - socket paths must be short
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        },
    )
    project.sdd.mkdir(parents=True)
    try:
        yield project
    finally:
        project.stop_services()
