"""What an import did with each run, and what it needs of the services, as values and protocols."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeAlias

from bernstein_client.recorder import Recording
from bernstein_client.values import FinishedRun, Rederived, RunInfo
from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError


class Journal(Protocol):
    """The journal service, as far as an import needs it."""

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str: ...
    def get_run(self, run_id: str) -> RunInfo: ...
    def append_rows(
        self,
        run_id: str,
        part: str,
        start_offset: int,
        data: bytes,
        prefix_sha256: bytes | None = None,
    ) -> int: ...
    def finish_run(self, run_id: str, *, spine_seal: bool = True) -> FinishedRun: ...


class Steps(Protocol):
    """The step journals, likewise."""

    def append_rows(
        self, agent_id: str, start_offset: int, data: bytes, prefix_sha256: bytes | None = None
    ) -> int: ...
    def import_blob(
        self, agent_id: str, digest: str, read: Callable[[], Iterator[bytes]]
    ) -> bool: ...


class Recorder(Protocol):
    """The recorder service, likewise."""

    def get_recording(self, run_id: str) -> Recording: ...
    def append_calls(
        self, run_id: str, start_offset: int, data: bytes, prefix_sha256: bytes | None = None
    ) -> int: ...


class Rederiver(Protocol):
    """The rederiver service, likewise."""

    def rederive_run(self, run_id: str) -> Rederived: ...


class Project(Protocol):
    """The services of the project that the runs go to; each is connected when it is needed."""

    @property
    def journal(self) -> Journal: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def recorder(self) -> Recorder: ...
    @property
    def rederiver(self) -> Rederiver: ...


class Part(StrEnum):
    """The append-only files of a run or session, in the order in which they are taken."""

    JOURNAL = "journal"
    CALLS = "calls"
    SPINE = "spine"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the source."""

    run_id: str

    def files(self) -> Mapping[Part, str]:
        """Their names below the state folder. Raises InvalidInput, here and below."""
        return {
            Part.JOURNAL: paths.journal_path(self.run_id),
            Part.CALLS: paths.llm_calls_path(self.run_id),
            Part.SPINE: paths.spine_path(self.run_id),
        }


@dataclass(frozen=True, slots=True)
class Session:
    """A step journal of the source."""

    agent_id: str

    def files(self) -> Mapping[Part, str]:
        return {Part.STEPS: paths.steps_path(self.agent_id)}


Subject: TypeAlias = Run | Session


class Status(StrEnum):
    """What became of a run or session."""

    NEW = "new"
    EXTENDED = "extended"
    UP_TO_DATE = "up to date"
    SEALED = "sealed"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run or session as it stands here after an import.

    `torn_bytes` are left in the source for later. What failed has a reason and, as far as that
    is known, the file with the physical line, from 1, and the hash that was expected and found.
    """

    run_id: str = ""
    status: Status = Status.UP_TO_DATE
    rows: int = 0
    calls: int = 0
    spine_rows: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    torn_bytes: int = 0
    reason: str = ""
    error: str = ""
    path: str = ""
    line: int | None = None
    expected_hash: str = ""
    actual_hash: str = ""
    # Of a step journal, which belongs to no run.
    agent_id: str = ""
    steps: int = 0
    # Of a run that was sealed: rows that the scheduler's rules refuse, by known gap or rule.
    findings: Mapping[str, int] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return Session(self.agent_id) if self.agent_id else Run(self.run_id)


def told(subject: Subject, status: Status) -> Outcome:
    """The outcome that says no more than what became of it."""
    if isinstance(subject, Run):
        return Outcome(run_id=subject.run_id, status=status)
    return Outcome(agent_id=subject.agent_id, status=status)


def failed(subject: Subject, error: BernsteinError) -> Outcome:
    """The outcome for what could not be taken in."""
    facts = error.metadata
    line = facts.get("line", "")
    return replace(
        told(subject, Status.FAILED),
        reason=error.reason,
        error=error.message,
        path=facts.get("path", ""),
        line=int(line) if line.isdecimal() else None,
        expected_hash=facts.get("expected_hash", ""),
        actual_hash=facts.get("actual_hash", ""),
    )
