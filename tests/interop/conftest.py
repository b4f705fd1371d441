"""An environment of its own for the peer, and one long-lived process that runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("peer_driver.py")
ENVIRONMENT = Path(__file__).with_name("peer_environment.py")
NO_INTERPRETER = 1  # what it exits with


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
    found = subprocess.run(
        [sys.executable, str(ENVIRONMENT)], capture_output=True, text=True, check=False
    )
    if found.returncode == NO_INTERPRETER and os.environ.get("CI") != "true":
        pytest.skip(found.stderr.strip())
    if found.returncode:
        pytest.fail(found.stderr)
    return Path(found.stdout.strip())


@pytest.fixture(scope="session")
def peer(peer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    driven = Peer(peer_folder, tmp_path_factory.mktemp("peer-home"))
    try:
        yield driven
    finally:
        driven.close()
