"""An environment of its own for the peer, and one long-lived process that runs it."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PEER_VERSION = "3.23.0"
FOLDER = Path(__file__).parents[2] / ".peer"
DRIVER = Path(__file__).with_name("peer_driver.py")
FINDER = Path(__file__).with_name("find_python.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    exit: int
    stdout: str
    stderr: str


class Peer:
    """The peer in a process of its own; one request at a time."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.command = folder / "bin" / "bernstein"
        self.python = folder / "bin" / "python"
        self._env = {"HOME": str(home), "PATH": os.defpath, "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            [str(self.python), str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env=self._env,
            text=True,
        )

    def run(
        self, *argv: str | Path, cwd: Path = Path("/"), env: Mapping[str, str] | None = None
    ) -> Outcome:
        words = [str(word) for word in argv]
        whole_env = {**self._env, **(env or {})}
        return Outcome(**self.ask({"argv": words, "cwd": str(cwd), "env": whole_env}))

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the peer's process ended (exit {self._process.wait()}) at {request}"
        reply: dict[str, Any] = json.loads(line)
        assert "raised" not in reply, reply["raised"]
        return reply

    def close(self) -> None:
        # End of input ends the driver; communicate() also closes both pipes.
        self._process.communicate()


@pytest.fixture(scope="session")
def peer_folder() -> Path:
    """The peer's environment, kept between runs and shared by all workers."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = FOLDER / "installed"
        if not (marker.exists() and marker.read_text() == PEER_VERSION):
            install(usable_python())
            marker.write_text(PEER_VERSION)
    return FOLDER / "venv"


@pytest.fixture(scope="session")
def peer(peer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    driven = Peer(peer_folder, tmp_path_factory.mktemp("peer-home"))
    try:
        yield driven
    finally:
        driven.close()


def install(python: str) -> None:
    target = FOLDER / "venv"
    shutil.rmtree(target, ignore_errors=True)
    checked([python, "-m", "venv", str(target)])
    checked([str(target / "bin" / "python"), "-m", "pip", "install", f"bernstein=={PEER_VERSION}"])


def checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def usable_python() -> str:
    """An interpreter that can run the peer, found by running candidates."""
    found = subprocess.run(
        [sys.executable, str(FINDER)], capture_output=True, text=True, check=False
    )
    if found.returncode == 0:
        return found.stdout.strip()
    if os.environ.get("CI") == "true":
        pytest.fail(found.stderr)
    pytest.skip(found.stderr.strip())
