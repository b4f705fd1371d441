"""The store's contract. Drivers keep it and share no code; one suite tests each of them.

A name is a relative path below the state folder, made by `bernstein_formats.paths`, such as
`runs/<run>/journal.jsonl`. A driver MUST refuse a name that leads out of the state folder, links
included, and MUST NOT create anything while it reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mark:
    """What an append left behind besides its bytes: who asked, and what was answered."""

    # 1 to 64 ASCII characters; the same id asks for the same answer again.
    request_id: str
    # Size of the log after this append, in bytes.
    size: int
    # The answer, as one line of text that only the log's owner understands.
    answer: str


class Log(Protocol):
    """An append-only file with one writer, open for appending."""

    @property
    def size(self) -> int:
        """Acknowledged bytes."""
        ...

    @property
    def marks(self) -> Sequence[Mark]:
        """Marks of the last 24 hours that were in the log when it was opened, oldest first."""
        ...

    def append(self, data: bytes, marks: Sequence[Mark]) -> None:
        """Append `data`, all or nothing; MUST be on stable storage when it returns.

        A crash may leave a part of `data` behind, never more; it is not there for anybody who
        reads, once the log is opened again. Raises DiskFull (nothing is appended), ForeignWriter
        (another program changed the file), StoreFailed.
        """
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Store(Protocol):
    """All evidence of one state folder."""

    def open_log(self, name: str) -> Log:
        """Open for appending; makes file and folder. At most one Log a name is open at a time."""
        ...

    def read(self, name: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `end` in chunks; nothing when there is no such file."""
        ...

    def size(self, name: str) -> int | None:
        """Size in bytes; None when there is no such file."""
        ...

    def changed_at(self, name: str) -> float:
        """Unix time of the last change; 0 when there is no such file."""
        ...

    def get(self, name: str) -> bytes | None:
        """A small file whole; None when there is none."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Replace a small file, atomically; MUST be on stable storage when it returns."""
        ...

    def put_parts(self, name: str, parts: Iterator[bytes]) -> int:
        """Like `put` for a large file; nothing is replaced when `parts` raises. Gives its size."""
        ...

    def run_ids(self) -> list[str]:
        """Names of the run folders, in no order; links that lead elsewhere are left out."""
        ...

    def make_run(self, run_id: str) -> None:
        """Make the run's folder. Raises RunExists."""
        ...
