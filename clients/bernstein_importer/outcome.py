"""What an import did with each run, and what it needs of the services, as values and protocols."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bernstein_client.recorder import Recording
from bernstein_client.values import RunInfo
from bernstein_formats import paths


class Journal(Protocol):
    """The journal service, as far as an import needs it."""

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str: ...
    def get_run(self, run_id: str) -> RunInfo: ...
    def append_rows(self, run_id: str, part: str, start_offset: int, data: bytes) -> int: ...


class Recorder(Protocol):
    """The recorder service, likewise."""

    def get_recording(self, run_id: str) -> Recording: ...
    def append_calls(self, run_id: str, start_offset: int, data: bytes) -> int: ...


class Part(StrEnum):
    """The append-only files of a run, in the order in which they are taken."""

    JOURNAL = "journal"
    CALLS = "calls"
    SPINE = "spine"

    def path(self, run_id: str) -> str:
        """Name the file below the state folder."""
        match self:
            case Part.JOURNAL:
                return paths.journal_path(run_id)
            case Part.CALLS:
                return paths.llm_calls_path(run_id)
            case Part.SPINE:
                return paths.spine_path(run_id)


class Status(StrEnum):
    """What became of a run."""

    NEW = "new"
    EXTENDED = "extended"
    UP_TO_DATE = "up to date"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run as it stands here after an import; `torn_bytes` are left in the source for later."""

    run_id: str
    status: Status
    rows: int = 0
    calls: int = 0
    spine_rows: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    torn_bytes: int = 0
    reason: str = ""
    error: str = ""
