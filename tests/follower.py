"""A follower of a peer as tests drive it: a process that is killed and told to go on."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.conftest import Project

PATIENCE_SECONDS = 60.0


class Follower:
    """`bernstein import --follow --json` as a process."""

    def __init__(self, project: Project, source: Path) -> None:
        self._project, self._source = project, source
        self.lines: list[Mapping[str, Any]] = []
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "bernstein_cli", "import", "--follow", str(self._source)]
        return subprocess.Popen(
            [*argv, "--sdd-dir", str(self._project.sdd), "--json"],
            env=dict(self._project.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def until(self, **wanted: Any) -> Mapping[str, Any]:
        """The next line that says this."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            assert self._process.stdout is not None
            line = self._line(self._process.stdout)
            if line is not None and wanted.items() <= line.items():
                return line
        raise AssertionError(f"{wanted} was not told; these were: {self.lines[-5:]}")

    def _line(self, output: IO[bytes]) -> Mapping[str, Any] | None:
        ready, _, _ = select.select([output], [], [], 1.0)
        text = output.readline() if ready else b""
        if not text:
            return None
        line: Mapping[str, Any] = json.loads(text)
        self.lines.append(line)
        return line

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def start_again(self) -> None:
        self._process = self._started()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)
        return self._process.returncode


@contextmanager
def following(project: Project, source: Path) -> Iterator[Follower]:
    follower = Follower(project, source)
    try:
        yield follower
    finally:
        follower.kill()


def kill_journal(project: Project) -> None:
    with project.services() as services:
        status = services.supervisor.ask({"do": "status"})
    assert status is not None
    (pid,) = (each["pid"] for each in status["services"] if each["service"] == "journal")
    os.kill(pid, signal.SIGKILL)
