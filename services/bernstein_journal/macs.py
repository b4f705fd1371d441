"""Spine and audit log as the journal serves them: rows by the queue, verdicts by the signer."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from bernstein_formats import paths
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import RunNotFound
from bernstein_formats.spine import SpineFields
from bernstein_formats.spine_verify import SpineStatus
from bernstein_journal.acknowledged_rows import AUDIT_TARGET, AcknowledgedRows
from bernstein_journal.audit_files import AuditFiles
from bernstein_journal.audit_log import AuditLog
from bernstein_journal.pending_macs import AuditRow, PendingMacs, SpineRow, WaitingRow
from bernstein_journal.signer import AuditChecked, Signer, SpineChecked
from bernstein_journal.spine_log import SpineLogs
from bernstein_runtime.clock import Clock
from bernstein_store.store import Store


class Macs:
    """Safe for any number of threads."""

    def __init__(self, store: Store, clock: Clock, signer: Callable[[], Signer]) -> None:
        self._store = store
        self._clock = clock
        self._signer = signer
        self._spines = SpineLogs(store, signer)
        self._audit_log = AuditLog(store, signer)
        self._audit_files = AuditFiles(store)
        self._rows = AcknowledgedRows(store)
        self.pending = PendingMacs(store, self._append)

    def append_spine(self, run_id: str, fields: SpineFields, request_id: str) -> str | None:
        """The entry's hash; None while it waits. Time 0 is now."""
        if not self._store.has_run(run_id):
            raise RunNotFound(f"there is no run {run_id}; create it first", run_id=run_id)
        now = int(self._clock.now_seconds() * 1_000_000) * 1000
        timed = fields if fields.timestamp else replace(fields, timestamp=now)
        return self.pending.append(SpineRow(request_id, run_id, timed))

    def append_audit(self, fields: AuditFields, request_id: str) -> str | None:
        """The event's HMAC; None while it waits."""
        now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)
        timestamp = f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"
        return self.pending.append(AuditRow(request_id, timestamp, fields))

    def verify_spine(self, run_id: str) -> tuple[SpineChecked, int]:
        """By the key; and how many entries wait."""
        name = paths.spine_path(run_id)
        size = self._store.size(name) or 0
        found = self._signer().verify_spine(lambda: self._store.read(name, 0, size))
        gone = self._rows.missing(name)
        if gone:
            found = replace(found, status=SpineStatus.TAMPERED, errors=(*found.errors, gone))
        return found, self.pending.waiting(f"spine of run {run_id}")

    def verify_audit_log(self) -> tuple[AuditChecked, int]:
        """By the key; and how many events wait."""
        segments = self._audit_files.segments()
        found = self._signer().verify_audit_log(
            lambda: ((each.name, self._audit_files.read(each)) for each in segments), ""
        )
        found = replace(found, error=found.error or self._rows.missing_events())
        return found, self.pending.waiting(AUDIT_TARGET)

    def _append(self, row: WaitingRow) -> str:
        if isinstance(row, SpineRow):
            return self._spines.append(row.run_id, row.fields, row.request_id)
        return self._audit_log.append(row.fields, row.timestamp, row.request_id)
