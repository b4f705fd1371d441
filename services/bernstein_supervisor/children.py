"""The service processes: started when asked for, and again when they die without being idle."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.disk import failed
from bernstein_runtime.places import Places
from bernstein_runtime.refusal import OUTPUT_BYTES_MAX, refusal_in
from bernstein_supervisor.log import open_log, say

SERVICES = ("journal", "recorder", "rederiver", "signer", "gateway", "proxy")
# Longer than a service lets its calls finish; after that it is killed.
STOP_SECONDS = 8.0


@dataclass(slots=True)
class Child:
    """One service process."""

    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)

    def refusal(self) -> BernsteinError | None:
        """Why a process that ended did not want to start; None when it did not say."""
        assert self.process.stdout is not None
        return refusal_in(self.process.stdout.read(OUTPUT_BYTES_MAX))

    def forget(self) -> None:
        """Close the pipes of a process that ended."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the greeting that nobody read
                pipe.close()


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

    def start(self, service: str) -> bool:
        """Start `service` unless it runs; whether it was started. Raises BernsteinError."""
        if service not in SERVICES:
            raise InvalidInput(f"there is no service {service!r}; there are {', '.join(SERVICES)}")
        if service in self.running:
            if self.running[service].process.poll() is None:
                return False
            self.running.pop(service).forget()
        log = open_log(self.places.log(service))
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", f"bernstein_{service}", str(self.places.sdd_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(self.environ),
                cwd="/",
            )
        except OSError as error:
            raise failed(self.places.log(service), error) from error
        finally:
            os.close(log)
        self._greet(process)
        self.running[service] = Child(process)
        return True

    def _greet(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, and whoever asks will see how
            # The pipe stays open: a service ends when its supervisor is gone.
            process.stdin.write(self.token.encode() + b"\n")
            process.stdin.flush()

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
            self.running.pop(service).forget()
            if code != 0 and self.restarts.get(service, 0) < self.restarts_max:
                self.restarts[service] = self.restarts.get(service, 0) + 1
                if self._started_again(service):
                    again.append(service)
        return again

    def _started_again(self, service: str) -> bool:
        try:
            return self.start(service)
        except BernsteinError as error:  # it is started when it is asked for
            say("not_restarted", service=service, reason=error.reason, error=error.message)
            return False

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
            child.forget()
        self.running.clear()
