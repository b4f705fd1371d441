"""Rows that need a MAC: made at once, or kept durably and in order until the signer is there.

While it cannot be reached rows queue up in one small file, replaced whole, and are appended in
order when it is back. A spine or a log that cannot be continued holds up its own rows alone. The
request id of a row is its own in the target too, so that a crash in between appends nothing twice,
nor do two journals of one store, who share the file.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import structlog

from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import (
    BernsteinError,
    LedgerRefused,
    QueueFull,
    StoreFailed,
    Unavailable,
)
from bernstein_formats.spine import SpineFields
from bernstein_journal.acknowledged_rows import AUDIT_TARGET
from bernstein_runtime.metrics import PENDING_MACS
from bernstein_store.store import Store

QUEUE: Final = "svc/pending-macs.json"
LOCK: Final = "svc/.pending-macs.lock"
ROWS_MAX: Final = 10_000
RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 60.0
# It does not answer, or refuses to start from its ledger.
SIGNER_AWAY: Final = (Unavailable, LedgerRefused)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SpineRow:
    """An entry for the spine of a run."""

    request_id: str
    run_id: str
    fields: SpineFields

    @property
    def target(self) -> str:
        return f"spine of run {self.run_id}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An event for the audit log, and when it happened."""

    request_id: str
    timestamp: str
    fields: AuditFields

    @property
    def target(self) -> str:
        return AUDIT_TARGET


WaitingRow = SpineRow | AuditRow
# Appends a row durably and gives its hash; Unavailable while the signer is away.
Apply = Callable[[WaitingRow], str]


class PendingMacs:
    """Safe for any number of threads; rows are made one at a time."""

    def __init__(self, store: Store, apply: Apply) -> None:
        self._store = store
        self._apply = apply
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_away = False
        # What this store's part of the metric is; a process may serve several.
        self._counted = 0
        with self._lock:
            self._see_to_retries(self._rows())

    def append(self, row: WaitingRow) -> str | None:
        """The row's hash; None when it is kept for later. Raises what only the caller can mend."""
        with self._lock:
            rows = self._rows()
            if any(each.request_id == row.request_id for each in rows):
                return None
            if not self._is_away and all(each.target != row.target for each in rows):
                try:
                    return self._apply(row)
                except SIGNER_AWAY as error:
                    log.warning("signer_away", error=error.message)
                    self._is_away = True
            self._see_to_retries(self._kept(row))
            return None

    def waiting(self, target: str) -> int:
        """Rows that are kept for a spine (`SpineRow.target`) or the audit log."""
        with self._lock:
            return sum(each.target == target for each in self._rows())

    def drain(self) -> None:
        """Append what can be appended, in order."""
        with self._lock:
            self._is_away = False
            done, held_up = set[str](), set[str]()
            for row in self._rows():
                if self._is_away or row.target in held_up or not self._was_appended(row):
                    held_up.add(row.target)
                else:
                    done.add(row.request_id)
            if done:
                with self._store.locked(LOCK):
                    self._put([row for row in self._rows() if row.request_id not in done])

    def stop(self) -> None:
        """End the retries; what waits is on stable storage."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _was_appended(self, row: WaitingRow) -> bool:
        try:
            self._apply(row)
        except SIGNER_AWAY:
            self._is_away = True
            return False
        except BernsteinError as error:
            log.warning("row_waits", target=row.target, reason=error.reason, error=error.message)
            return False
        return True

    def _rows(self) -> list[WaitingRow]:
        rows = _loaded(self._store.get(QUEUE))
        self._count(len(rows))
        return rows

    def _count(self, waiting: int) -> None:
        PENDING_MACS.add(waiting - self._counted)
        self._counted = waiting

    def _kept(self, row: WaitingRow) -> list[WaitingRow]:
        """Keep a row behind those that wait; all of them."""
        with self._store.locked(LOCK):
            rows = self._rows()
            if len(rows) >= ROWS_MAX:
                raise QueueFull(f"{ROWS_MAX} rows wait for the signer already; see why it is away")
            self._put([*rows, row])
        return [*rows, row]

    def _put(self, rows: Sequence[WaitingRow]) -> None:
        members: list[JsonValue] = [
            {"kind": "spine" if isinstance(row, SpineRow) else "audit", **asdict(row)}
            for row in rows
        ]
        self._store.put(QUEUE, spelled(members).encode() + b"\n")
        self._count(len(rows))

    def _see_to_retries(self, rows: Sequence[WaitingRow]) -> None:
        if rows and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._retry, name="pending-macs", daemon=True)
            self._thread.start()

    def _retry(self) -> None:
        pause = RETRY_SECONDS
        while not self._stopped.wait(pause):
            try:
                self.drain()
                if not self._rows():
                    return
            except BernsteinError as error:
                log.warning("rows_wait", reason=error.reason, error=error.message)
            pause = min(2 * pause, RETRY_SECONDS_MAX)


def _loaded(data: bytes | None) -> list[WaitingRow]:
    """StoreFailed for a file that we did not write so: what it held must not get lost."""
    try:
        return [_row(members) for members in json.loads(data or b"[]")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreFailed(
            f"{QUEUE} cannot be read ({error}); restore it from a copy, or put it aside", path=QUEUE
        ) from error


def _row(members: dict[str, object]) -> WaitingRow:
    kind, fields = members.pop("kind"), members.pop("fields")
    assert isinstance(fields, dict)  # of our own making, like its members' types
    known = {name: str(value) for name, value in members.items()}
    if kind == "spine":
        return SpineRow(fields=SpineFields(**fields), **known)
    return AuditRow(fields=AuditFields(**fields), **known)
