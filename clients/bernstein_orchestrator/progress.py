"""What a run tells while it goes on, and what it was in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from bernstein_client.proxy import LaneAccount
from bernstein_client.recorder import Recording, UnusedCall

COMPLETED: Final = "completed"
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run has its folder; no agent runs yet."""

    run_id: str
    folder: Path
    task_count: int
    max_agents: int
    replay_of: str
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """An attempt was claimed, durably, and its agent starts; `agent` is a model or a program."""

    task_id: str
    title: str
    attempt: int
    agent: str


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """An attempt's outcome is durable; `detail` is the end of what a failed agent printed."""

    task_id: str
    title: str
    attempt: int
    failed_signals: tuple[str, ...]
    is_retried: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something said for completeness."""

    text: str


Progress: TypeAlias = RunStarted | TaskStarted | TaskFinished | Warned | Noted
Report: TypeAlias = Callable[[Progress], None]


def warner(report: Report) -> Callable[[str], None]:
    """Pass each warning on once: attempts of one task would repeat theirs."""
    seen: set[str] = set()

    def warn(text: str) -> None:
        if text not in seen:
            seen.add(text)
            report(Warned(text))

    return warn


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How a replay compares with its recording; equal heads leave `first_difference` empty.

    `unvouched` says why nothing shows that the recording is what was recorded.
    """

    replay_of: str
    recorded_head: str
    head: str
    first_difference: str
    coverage_line: str
    hit_count: int
    miss_count: int
    unused_calls: tuple[UnusedCall, ...]
    unused_count: int
    unrecorded_tasks: tuple[str, ...]
    unvouched: str = ""
    # What became of the programs' lanes.
    lanes: tuple[LaneAccount, ...] = ()

    def lane_count(self, name: str) -> int:
        """A number of all lanes together."""
        return sum(int(getattr(each, name)) for each in self.lanes)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was recorded was asked for."""
        return not self.unused_count and not self.lane_count("unused_count")

    @property
    def heads_equal(self) -> bool:
        return bool(self.head) and self.head == self.recorded_head


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended; the tasks are titles in plan order."""

    run_id: str
    folder: Path
    outcome: str
    completed: tuple[str, ...]
    failed: tuple[str, ...]
    undone: tuple[str, ...]
    head_hash_hex: str
    row_count: int
    recording: Recording | None
    replay: ReplayResult | None
    next_step: str
    has_programs: bool = False

    @property
    def is_good(self) -> bool:
        """Whether every task is done and a replay reached the recorded head."""
        if self.replay is not None:
            return self.replay.heads_equal
        return self.outcome == COMPLETED
