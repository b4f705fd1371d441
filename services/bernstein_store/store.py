"""The store's contract. Drivers keep it and share no code; one suite tests each of them.

A name is a relative path below the state folder, made by `bernstein_formats.paths`, such as
`runs/<run>/journal.jsonl`. A driver MUST refuse a name that leads out of the state folder, links
included, MUST NOT write through a link to another file or folder of its own either, and MUST NOT
create anything while it reads.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bernstein_formats.acknowledged import Acknowledged

LOCK_WAIT_SECONDS = 10.0


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
    """An append-only file, open for appending.

    Its content moves by appends that were compared with what is there: whoever is not at its end
    any more gets ForeignWriter, and nothing is appended.
    """

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
        (nothing is appended: somebody else did, or the log has ended), StoreFailed, and Unavailable
        when nobody knows whether the data is there: its marks tell.
        """
        ...

    def catch_up(self) -> Sequence[Mark]:
        """Go to where other processes of this store have brought the log; the marks on that way.

        Raises ForeignWriter where that is no mere appending by such processes.
        """
        ...

    def set_aside(self, start: int) -> str:
        """Move all bytes from `start` on to a file beside the log, which is the answer.

        For what a crash of another program left. MUST be on stable storage when it returns; the
        bytes are in one file or in both, never in none. Raises ForeignWriter, and leaves all as it
        is, when some of them were acknowledged.
        """
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Reader(Protocol):
    """A stored file as it was found under its name; closed when nobody holds it any more."""

    def read(self, offset: int, length: int) -> bytes:
        """Those bytes, fewer at the end of the file."""
        ...

    def facts(self) -> tuple[int, float]:
        """Its size in bytes now, and the Unix time of its last change."""
        ...


class Store(Protocol):
    """All evidence of one origin: a host's project."""

    def open_log(self, name: str, *, private: bool = False) -> Log:
        """Open for appending; makes file and folder. At most one Log a name is open at a time in
        a process; files allow no other process beside it.

        `private`: folder and file are the owner's alone (0700, 0600), also where they are there.
        """
        ...

    def marks_of(self, name: str) -> Sequence[Mark]:
        """The marks of a log that is not open; nothing is changed."""
        ...

    def acknowledged(self, name: str) -> Acknowledged:
        """What was acknowledged of a log, open or not; nothing of a file that is none."""
        ...

    def logs_in(self, folder: str) -> list[str]:
        """Names of the logs directly in a folder, those included whose file is gone."""
        ...

    def accept_log(self, name: str) -> None:
        """Take what is there of a log that is not open for all that was acknowledged of it."""
        ...

    def rewrite_log(self, name: str, parts: Callable[[], Iterator[bytes]]) -> None:
        """Put other content in the place of a log that is not open; its marks stay.

        For repairs alone: whoever calls has kept the old content. `parts` is called twice.
        """
        ...

    def end_log(self, name: str, size: int, note: str, data: bytes) -> None:
        """Put `data` into the file `note`, as the end of a log of this size.

        Nobody can append to the log afterwards. Raises ForeignWriter where it has another size.
        """
        ...

    def read(self, name: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `end` in chunks; nothing when there is no such file."""
        ...

    def open_reader(self, name: str) -> Reader | None:
        """For many small reads; None when there is no such file."""
        ...

    def size(self, name: str) -> int | None:
        """Size in bytes; None when there is no such file."""
        ...

    def stored_size(self, name: str) -> int:
        """Bytes on stable storage: what may be shown to those who follow; 0 without such a file."""
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

    def remove(self, name: str) -> None:
        """Remove a file, durably; nothing when there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in a folder, sorted; none where there is no such folder."""
        ...

    def names_below(self, folder: str) -> list[str]:
        """The same with those in folders below, by their way from `folder`; links are left out."""
        ...

    def locked(self, name: str) -> AbstractContextManager[object]:
        """Hold a lock that other programs know by this name, the peer among them; one a thread.

        Who has lost it, with a connection say, cannot append any more. Raises Conflict when
        somebody keeps it for LOCK_WAIT_SECONDS.
        """
        ...

    def run_ids(self) -> list[str]:
        """Names of the run folders, in no order; links that lead elsewhere are left out."""
        ...

    def has_run(self, run_id: str) -> bool:
        """Whether it is one of `run_ids`."""
        ...

    def real_run(self, run_id: str) -> str:
        """The run that a link among the run folders stands for; any other id is itself.

        Raises InvalidInput for a link to anything else than a run of this store.
        """
        ...

    def make_run(self, run_id: str) -> None:
        """Make the run's folder. Raises RunExists."""
        ...

    def is_own_folder(self, run_id: str) -> bool:
        """Whether the run has a folder to itself: no link, which another run might use."""
        ...

    def remove_run(self, run_id: str, keep: Collection[str], last: str) -> None:
        """Remove a run's files except those named in `keep`; `last` goes after all others.

        MUST NOT follow a link: a link is removed itself. Raises InvalidInput where the run has no
        folder to itself.
        """
        ...

    def tell(self, on_changed: Callable[[str], None]) -> float:
        """Have `on_changed` hear the names of changed files, soon; it must not block.

        Other programs' changes may go untold: gives after how many seconds to look oneself.
        """
        ...

    def check(self) -> None:
        """Raise what keeps a run that is begun now from being stored."""
        ...

    def where(self, name: str) -> str:
        """Where a file is, for people."""
        ...

    def close(self) -> None:
        """Let go of everything; nothing is asked of it any more."""
        ...


class Stores(Protocol):
    """The stores of any number of origins in one place. Thread-safe."""

    def of(self, origin: str) -> Store:
        """One origin's, opened anew; close it. Raises NotAllowed, Unavailable, StoreFailed."""
        ...

    def facts(self) -> Mapping[str, str]:
        """What an operator wants to know of them, in words. Raises Unavailable, StoreFailed."""
        ...

    def close(self) -> None:
        """Let go of what they share; all of them are closed."""
        ...
