"""Whole commands from start to end, and the processes that stay behind them."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import rows
from benchmarks.measuring import Figure, Measure, Setting, durations, wall_seconds
from benchmarks.project import OUR_COMMAND, PeerEnvironment, Project, fresh_project
from benchmarks.receipts import build_receipt, write_key

ROWS = 100
SERVICES = ("journal", "recorder", "rederiver", "signer")
SETTLING_SECONDS = 1.0
KIB = 1024


def commands(setting: Setting, peer: PeerEnvironment) -> Iterator[Figure]:
    with fresh_project(setting.folder, "commands") as project:
        rows.write_run(project.sdd, "run-1", rows.std_events(ROWS))
        receipt = setting.folder / "receipt.json"
        build_receipt(project.sdd, "run-1", write_key(setting.folder)[0], receipt)
        replay = ["replay", "run-1", "--verify", "--sdd-dir", str(project.sdd)]
        cases = [
            ("verify receipt, whole command", ["verify", "receipt", str(receipt)], []),
            ("replay --verify --offline, whole command", replay, ["--offline"]),
            ("replay --verify, services warm", replay, []),
        ]
        for name, argv, only_ours in cases:
            ours = timed(project, OUR_COMMAND, [*argv, *only_ours])
            ours()
            theirs = timed(project, peer.command, argv)
            yield durations(name, setting.repeats, ours, theirs)
        yield cold_start(setting, project, [str(OUR_COMMAND), *replay])


def timed(project: Project, command: Path, argv: list[str]) -> Measure:
    """The time of a process, which must succeed."""

    def work() -> None:
        subprocess.run(
            [str(command), *argv],
            cwd=project.folder,
            env=dict(project.environ),
            check=True,
            capture_output=True,
        )

    return wall_seconds(work)


def cold_start(setting: Setting, project: Project, command: list[str]) -> Figure:
    """The first command: it starts the supervisor and the services that it needs."""
    seconds = []
    for _ in range(setting.repeats):
        project.stop_services()
        seconds.append(timed(project, Path(command[0]), command[1:])())
    return Figure("first command, services cold", "ms", 1e3 * min(seconds))


def idle_services(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    """The supervisor and all four, after they started and did nothing."""
    with fresh_project(setting.folder, "idle") as project, project.services() as services:
        for name in SERVICES:
            services.supervisor.ensure(name)
        time.sleep(SETTLING_SECONDS)
        status = services.supervisor.ask({"do": "status"})
        assert status is not None
        pids = [status["pid"], *(each["pid"] for each in status["services"])]
        assert len(pids) == 1 + len(SERVICES)
        for member in "Pss", "Rss":
            used = sum(memory_mib(pid, member) for pid in pids)
            yield Figure(f"idle services, {member.upper()}", "MiB", used)


def memory_mib(pid: int, member: str) -> float:
    """PSS counts what processes share once in all, RSS in each."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    line = next(line for line in rollup.splitlines() if line.startswith(f"{member}:"))
    return int(line.split()[1]) / KIB
