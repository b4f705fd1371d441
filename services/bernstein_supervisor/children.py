"""The service processes: started when asked for, and again when they die without being idle."""

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bernstein_formats.errors import InvalidInput, Unavailable
from bernstein_runtime.places import Places

SERVICES = ("journal", "recorder", "rederiver", "signer", "gateway")
# A log larger than this is put aside when its service starts.
LOG_BYTES_MAX = 4 * 1024 * 1024
# Longer than a service lets its calls finish; after that it is killed.
STOP_SECONDS = 8.0


@dataclass(slots=True)
class Child:
    """One service process."""

    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Children:
    """All service processes of a project. Not thread-safe: one thread owns it."""

    places: Places
    environ: Mapping[str, str]
    restarts_max: int
    # Known to the journal and the signer alone, so that nobody else can have things signed.
    token: str
    running: dict[str, Child] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    def start(self, service: str) -> None:
        """Start `service` unless it runs."""
        if service not in SERVICES:
            raise InvalidInput(f"there is no service {service!r}; there are {', '.join(SERVICES)}")
        if service in self.running and self.running[service].process.poll() is None:
            return
        log = self.places.log(service)
        put_aside(log)
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", f"bernstein_{service}", str(self.places.sdd_dir)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=dict(self.environ),
                cwd="/",
            )
        self._tell(process)
        self.running[service] = Child(process)

    def _tell(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        try:
            # It stays open: a service ends when its supervisor is gone.
            process.stdin.write(self.token.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise Unavailable("the service ended while it was started; see its log") from error

    def exit_code(self, service: str) -> int | None:
        """How the process of a started service ended; None while it runs."""
        return self.running[service].process.poll()

    def reap(self) -> list[str]:
        """Notice ended processes; start again those that died. Returns what was started again."""
        again: list[str] = []
        for service, child in list(self.running.items()):
            code = child.process.poll()
            if code is None:
                continue
            del self.running[service]
            if code != 0 and self.restarts.get(service, 0) < self.restarts_max:
                self.restarts[service] = self.restarts.get(service, 0) + 1
                self.start(service)
                again.append(service)
        return again

    def stop(self) -> None:
        """End every service; each finishes what it acknowledged."""
        give_up = time.monotonic() + STOP_SECONDS
        for child in self.running.values():
            child.process.terminate()
        for child in self.running.values():
            try:
                child.process.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self.running.clear()


def put_aside(log: Path) -> None:
    """Keep one old log; logs never grow without end."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
