"""What was sealed and signed: an append-only file of signed, chained entries, verified at starts.

Only one signer holds it at a time. An entry is on stable storage before anybody hears of it, so a
torn last line was never told and is cut. Anything else that does not verify stops the signer: from
a ledger that was changed nothing may be signed.
"""

import fcntl
import os
import threading
from array import array
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog

from bernstein_formats.errors import (
    Broken,
    Conflict,
    ForeignWriter,
    LedgerRefused,
    StoreFailed,
)
from bernstein_formats.seal import (
    NO_ENTRY_HASH,
    Entry,
    EntryBody,
    EntryKind,
    ReceiptMade,
    Seal,
    parse_entry,
)
from bernstein_runtime.clock import Clock
from bernstein_runtime.disk import failed
from bernstein_runtime.metrics import LEDGER_BYTES, LEDGER_ENTRIES, SEALED_RUNS
from bernstein_signer.key import Key
from bernstein_store.durable import stop_for_good, write_all

LEDGER_FILE: Final = "ledger.jsonl"
_READ_BYTES: Final = 1024 * 1024
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Run:
    """Which run: host and project, and the id that is unique among them only."""

    origin: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Head:
    """How far a run's rows go."""

    event_count: int
    head_hash: str


class Ledger:
    """An open ledger; its methods may be called from any thread."""

    def __init__(self, folder: Path, key: Key, clock: Clock) -> None:
        """Open and verify the file, which exists.

        Conflict: another signer has it. LedgerRefused: it is broken.
        """
        self._path = folder / LEDGER_FILE
        self._key = key
        self._clock = clock
        self._lock = threading.RLock()
        self._newest: dict[tuple[Run, EntryKind], int] = {}
        # SHA-256 of every receipt, with its run.
        self._receipts: set[tuple[Run, str]] = set()
        self._ends = array("Q")
        self._head_hash = NO_ENTRY_HASH
        self._file = self._open()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load()
        except BlockingIOError as error:
            os.close(self._file)
            raise Conflict(f"{self._path} is held by another signer", path=self._path) from error
        except (OSError, LedgerRefused):
            os.close(self._file)
            raise

    def __len__(self) -> int:
        return len(self._ends)

    def close(self) -> None:
        """Give the ledger to another process."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def find_run(self, run: Run) -> Entry | None:
        """The run's newest seal."""
        return self._find(run, EntryKind.SEAL)

    def find_seal(self, run: Run) -> Seal | None:
        """What `seal.json` beside the run should hold."""
        newest = self.find_run(run)
        return None if newest is None else Seal(newest, self._key.public_key)

    def seal(self, run: Run, head: Head, known: Entry | None) -> Seal:
        """Seal rows that were checked against `known`; the same rows again give the same seal."""
        with self._lock:
            newest = self.find_run(run)
            if newest is None or head_of(newest) != head:
                if newest != known:
                    raise Conflict(
                        f"run {run.run_id} was sealed by another call meanwhile; try again",
                        run_id=run.run_id,
                    )
                newest = self._append(run, head, None)
                SEALED_RUNS.add()
            return Seal(newest, self._key.public_key)

    def note_receipt(self, run: Run, head: Head, receipt: ReceiptMade) -> None:
        """Remember a receipt before it is given away; the run's newest one again is no news."""
        with self._lock:
            newest = self._find(run, EntryKind.RECEIPT)
            if newest is None or newest.body.receipt != receipt:
                self._append(run, head, receipt)

    def has_receipt(self, run: Run, receipt_sha256: str) -> bool:
        """Whether this very receipt was ever noted."""
        with self._lock:
            return (run, receipt_sha256) in self._receipts

    def check_reaches(self, checkpoint: Seal) -> None:
        """Raise LedgerRefused unless the ledger holds this seal, which somebody has seen."""
        with self._lock:
            index = checkpoint.entry.body.index
            if index < len(self) and self._entry_at(index) == checkpoint.entry:
                return
        raise LedgerRefused(
            f"{self._path} has {len(self)} entries, and entry {index} is not the seal of run "
            f"{checkpoint.entry.body.run_id} that this project was given: the ledger was cut or "
            "replaced; restore the newest copy of its folder",
            path=self._path, index=index, run_id=checkpoint.entry.body.run_id,
        )  # fmt: skip

    def _open(self) -> int:
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags)
            os.fchmod(descriptor, 0o600)
        except OSError as error:
            raise failed(self._path, error) from error
        return descriptor

    def _load(self) -> None:
        rest = b""
        with os.fdopen(os.dup(self._file), "rb") as file:
            while part := file.read(_READ_BYTES):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    self._add_stored(line)
        if rest:
            log.warning("torn_tail_cut", path=str(self._path), bytes=len(rest))
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)

    def _add_stored(self, line: bytes) -> None:
        number = len(self)
        try:
            entry = parse_entry(line)
            if (entry.body.index, entry.body.prev_entry_hash) != (number, self._head_hash):
                raise LedgerRefused("it does not follow the entry before it")
            entry.check_signature(self._key.public_key)
        except Broken as error:
            raise LedgerRefused(
                f"{self._path}, line {number + 1}: {error.message}; nothing is signed from a "
                "broken ledger: restore the newest copy of its folder",
                path=self._path, line=number + 1,
            ) from error  # fmt: skip
        self._remember(entry, line)

    def _remember(self, entry: Entry, line: bytes) -> None:
        run = Run(entry.body.origin, entry.body.run_id)
        self._newest[run, entry.body.kind] = len(self)
        if entry.body.receipt is not None:
            self._receipts.add((run, entry.body.receipt.receipt_sha256))
        self._ends.append(self._size + len(line) + 1)
        LEDGER_ENTRIES.add()
        LEDGER_BYTES.add(len(line) + 1)
        self._head_hash = sha256(line).hexdigest()

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _find(self, run: Run, kind: EntryKind) -> Entry | None:
        with self._lock:
            index = self._newest.get((run, kind))
            return None if index is None else self._entry_at(index)

    def _entry_at(self, index: int) -> Entry:
        start = self._ends[index - 1] if index else 0
        try:
            line = os.pread(self._file, self._ends[index] - start - 1, start)
        except OSError as error:
            raise failed(self._path, error) from error
        return parse_entry(line)

    def _append(self, run: Run, head: Head, receipt: ReceiptMade | None) -> Entry:
        body = EntryBody(
            index=len(self),
            prev_entry_hash=self._head_hash,
            origin=run.origin,
            run_id=run.run_id,
            event_count=head.event_count,
            head_hash=head.head_hash,
            sealed_at=_instant(self._clock.now_seconds()),
            receipt=receipt,
        )
        entry = Entry(body, self._key.sign(body.preimage()))
        line = entry.line()
        self._write(line + b"\n")
        self._remember(entry, line)
        return entry

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            raise StoreFailed(f"{self._path}: closed after a failure; see the log", path=self._path)
        self._check_ours()
        try:
            write_all(self._file, data)
        except OSError as error:
            self._cut_back()
            raise failed(self._path, error) from error
        self._sync()

    def _check_ours(self) -> None:
        try:
            named, held = self._path.stat(follow_symlinks=False), os.fstat(self._file)
        except OSError as error:
            raise failed(self._path, error) from error
        if (named.st_ino, named.st_size) != (held.st_ino, self._size):
            self.close()
            raise ForeignWriter(
                f"{self._path} was changed or replaced by another program; stop it and restart",
                path=self._path,
            )

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self.close()
            stop_for_good(self._path, error)
        self._sync()

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            self.close()
            stop_for_good(self._path, error)


def head_of(entry: Entry) -> Head:
    """The rows that an entry is about."""
    return Head(entry.body.event_count, entry.body.head_hash)


def _instant(unix_seconds: float) -> str:
    """RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
