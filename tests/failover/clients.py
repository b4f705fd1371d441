"""Sixteen clients of a fleet, what they were told, and how long each of them had to wait."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from bernstein_client.connection import Services

# Twelve that append to four runs, two that record model calls, two that make runs and seal them.
KINDS: Final = ("append",) * 12 + ("record",) * 2 + ("seal",) * 2
SHARED_RUN_COUNT: Final = 4
ROOT: Final = Path(__file__).parents[2]
SECONDS_MAX: Final = 90.0


@dataclass(frozen=True)
class Answer:
    """To one request; times are seconds of this machine's monotonic clock."""

    n: int
    began: float
    ended: float
    told: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Client:
    """One process, started when made."""

    def __init__(
        self,
        kind: str,
        name: str,
        run_id: str,
        *,
        folder: Path,
        environ: Mapping[str, str],
    ) -> None:
        self.kind, self.name, self.run_id = kind, name, run_id
        self.was_killed = False
        self._answers = folder / f"{name}.jsonl"
        self._errors = folder / f"{name}.log"
        command = [sys.executable, "-m", "tests.failover.client"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, kind, name, run_id, str(self._answers)],
                cwd=ROOT,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def kill(self) -> None:
        self.was_killed = True
        self._process.kill()
        self._process.wait()

    def ask_to_end(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        """Until it ended, by itself and well."""
        code = self._process.wait(SECONDS_MAX)
        assert self.was_killed or code == 0, f"{self.name}: {self._errors.read_text()[-3000:]}"

    def reap(self) -> None:
        """Whatever happened."""
        self._process.kill()
        self._process.wait()

    def count(self) -> int:
        """Answers so far."""
        assert self.was_killed or self._process.poll() is None, self._errors.read_text()[-3000:]
        return self._answers.read_bytes().count(b"\n") if self._answers.exists() else 0

    @cached_property
    def answers(self) -> list[Answer]:
        """All that it was told; not before it ended."""
        lines = self._answers.read_bytes().split(b"\n")[:-1] if self._answers.exists() else []
        rows = map(json.loads, lines)
        return [Answer(row.pop("n"), row.pop("began"), row.pop("ended"), row) for row in rows]


class Clients:
    """All of them. `reap` ends them however the test ends."""

    def __init__(self, services: Services, folder: Path, environ: Mapping[str, str]):
        folder.mkdir()
        self._started = (folder, environ)
        self.shared = [services.journal.create_run(f"shared-{n}") for n in range(SHARED_RUN_COUNT)]
        self.all: list[Client] = []
        for number, kind in enumerate(KINDS):
            run_id = f"{kind}-{number}"
            if kind == "append":
                run_id = self.shared[number % SHARED_RUN_COUNT]
            elif kind == "record":
                services.journal.append(services.journal.create_run(run_id), "x", {})
            self._start(kind, f"client-{number}", run_id)

    def _start(self, kind: str, name: str, run_id: str) -> None:
        folder, environ = self._started
        self.all.append(Client(kind, name, run_id, folder=folder, environ=environ))

    def kill_one(self) -> None:
        """An appending one; its host starts another in its place."""
        victim = next(each for each in self.all if each.kind == "append" and not each.was_killed)
        victim.kill()
        self._start(victim.kind, f"{victim.name}-again", victim.run_id)

    def wait_until_all_go_on(self) -> None:
        """Until each of those that live was given two more answers: one may have been under way."""
        living = [each for each in self.all if not each.was_killed]
        goals = [(each, each.count() + 2) for each in living]
        give_up = time.monotonic() + SECONDS_MAX
        while waiting := [each.name for each, goal in goals if each.count() < goal]:
            assert time.monotonic() < give_up, f"do not go on: {waiting}"
            time.sleep(0.1)

    def end(self) -> None:
        """Each after the answer it waits for."""
        for each in self.all:
            if not each.was_killed:
                each.ask_to_end()
        for each in self.all:
            each.wait()

    def reap(self) -> None:
        for each in self.all:
            each.reap()

    def of(self, kind: str) -> Iterator[Client]:
        return (each for each in self.all if each.kind == kind)


def longest_waits(clients: Clients, since: float, until: float) -> dict[str, float]:
    """By kind of work: the longest that one request took which was answered in that time."""
    return {
        kind: max(
            (
                answer.seconds
                for client in clients.of(kind)
                for answer in client.answers
                if since < answer.ended <= until
            ),
            default=0.0,
        )
        for kind in dict.fromkeys(KINDS)
    }
