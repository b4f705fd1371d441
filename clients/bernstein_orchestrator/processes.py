"""Running a program for an agent or a check: own process group, time limit, little environment.

Whatever the program leaves behind in its group is ended with it.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import IO, Final

from bernstein_agent.sandbox import Sandbox
from bernstein_formats.errors import InvalidInput
from bernstein_runtime.disk import in_words

TAIL_LIMIT: Final = 16 * 1024
_GRACE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1
_BLOCK: Final = 8 * 1024
_ALLOWED_NAMES: Final = frozenset(("PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM"))


class Ending(Enum):
    """How a program ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended; `tail` is the end of what it printed on both streams."""

    ending: Ending
    exit_code: int = 0
    tail: str = ""
    is_group_ended: bool = True

    @property
    def is_good(self) -> bool:
        return self.ending is Ending.EXITED and self.exit_code == 0


def allowed_environment(
    environment: Mapping[str, str], names: Iterable[str] = ()
) -> dict[str, str]:
    """Keep what any program needs and what was asked for by name; never our own variables."""
    wanted = _ALLOWED_NAMES | set(names)
    return {
        name: value
        for name, value in environment.items()
        if (name in wanted or name.startswith("LC_")) and not name.startswith("BERNSTEIN_")
    }


class Groups:
    """The process groups at work, so that who ends in a hurry leaves none of them behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: set[int] = set()
        self._is_closed = False

    def start(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> "subprocess.Popen[bytes] | None":
        """Start a program in a group of its own; None once they were ended."""
        with self._lock:
            if self._is_closed:
                return None
            process = subprocess.Popen(  # noqa: S603 - running the plan's program is the task
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                start_new_session=True,
            )
            self._at_work.add(process.pid)
            return process

    def forget(self, group: int) -> None:
        """It is over."""
        with self._lock:
            self._at_work.discard(group)

    def end(self) -> None:
        """Kill what is at work, and let nothing start any more."""
        with self._lock:
            self._is_closed = True
            for group in self._at_work:
                _signal_group(group, signal.SIGKILL)


def run_program(
    command: Sequence[str],
    *,
    groups: Groups,
    folder: Path,
    environment: Mapping[str, str],
    timeout_seconds: float,
    stop: threading.Event,
    sandbox: Sandbox | None = None,
) -> Finished:
    """Run to the end, to the time limit, or until `stop` is set. Raises SandboxMissing."""
    if sandbox is not None:
        command = sandbox.command(command)
    try:
        passed = () if sandbox is None else [sandbox.status]
        process = groups.start(command, folder, environment, passed)
    except (OSError, ValueError) as error:
        return Finished(Ending.NOT_STARTED, tail=f"{command[0]}: {in_words(error)}")
    if process is None:
        return Finished(Ending.STOPPED)
    with process:
        tail = _Tail(process.stdout)
        if sandbox is not None:
            try:
                sandbox.wait_until_ready()
            except InvalidInput as error:
                groups.forget(process.pid)
                return Finished(Ending.NOT_STARTED, tail=error.message)
        ending = _wait(process, timeout_seconds, stop)
        if ending is not Ending.EXITED:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        is_ended = _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        groups.forget(process.pid)
        return Finished(ending, process.returncode, tail.text(), is_ended)


def _wait(process: subprocess.Popen[bytes], seconds: float, stop: threading.Event) -> Ending:
    deadline = monotonic() + seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return Ending.EXITED
        if stop.is_set():
            return Ending.STOPPED
        if monotonic() >= deadline:
            return Ending.TIMED_OUT


def _signal_group(group: int, number: signal.Signals) -> bool:
    """Signal every process of a group; False when one of them is not ours to signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # all are gone already
    except PermissionError:
        return False
    return True


class _Tail:
    """Reads a stream to its end in a thread, and keeps the end of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes] | None) -> None:
        if stream is None:
            return
        with suppress(OSError, ValueError):
            while block := os.read(stream.fileno(), _BLOCK):
                self._kept = (self._kept + block)[-TAIL_LIMIT:]

    def text(self) -> str:
        self._thread.join(_GRACE_SECONDS)
        return self._kept.decode(errors="replace")
