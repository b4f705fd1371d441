"""How things are measured: ours and the peer's take turns, and the best of each counts."""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured thing. `ratio` says how many times better ours is than what it is held against;
    None: the figure stands by itself."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None

    def as_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "Figure":
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Setting:
    """Where to write, how much to measure, and whether the peer is there."""

    folder: Path
    quick: bool

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 5

    def count(self, full: int) -> int:
        """So many rows in a full run, a tenth in a quick one."""
        return full // 10 if self.quick else full


Measure = Callable[[], float]


def cpu_seconds(work: Callable[[], object]) -> Measure:
    """CPU time of this process: other jobs on the machine hardly show in it."""
    return lambda: _timed(time.process_time, work)


def wall_seconds(work: Callable[[], object]) -> Measure:
    """Time that passes: for disks, sockets and new processes."""
    return lambda: _timed(time.perf_counter, work)


def _timed(clock: Callable[[], float], work: Callable[[], object]) -> float:
    gc.collect()
    began = clock()
    work()
    return clock() - began


def alternating(repeats: int, ours: Measure, peer: Measure) -> tuple[float, float]:
    """The least seconds of each, measured A B A B."""
    seconds = [(ours(), peer()) for _ in range(repeats)]
    return min(ours for ours, _ in seconds), min(peer for _, peer in seconds)


def rates(name: str, repeats: int, count: int, ours: Measure, peer: Measure) -> Figure:
    """How many of something per second."""
    our_seconds, peer_seconds = alternating(repeats, ours, peer)
    ratio = peer_seconds / our_seconds
    return Figure(name, "/s", count / our_seconds, count / peer_seconds, ratio)


def durations(name: str, repeats: int, ours: Measure, peer: Measure) -> Figure:
    """How long something takes once."""
    our_seconds, peer_seconds = alternating(repeats, ours, peer)
    return Figure(name, "ms", 1e3 * our_seconds, 1e3 * peer_seconds, peer_seconds / our_seconds)


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Gives a function: the greatest resident memory since now, over what it is now, in MiB."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status_kib("VmRSS")
    yield lambda: (_status_kib("VmHWM") - before) / 1024


def _status_kib(member: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(member):
            return int(line.split()[1])
    sys.exit(f"this system does not tell {member}")
