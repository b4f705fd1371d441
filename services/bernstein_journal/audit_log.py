"""Appending to the project's audit log: behind its last event, under the lock the peer takes."""

from collections.abc import Callable

from bernstein_formats.audit_log import (
    AUDIT_FOLDER,
    CHAIN_LOCK,
    SEGMENT_SUFFIX,
    AuditFields,
    read_audit_row,
)
from bernstein_formats.errors import Conflict
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.audit_files import AuditFiles
from bernstein_journal.one_line import append_line, known_answer
from bernstein_journal.signer import Signer
from bernstein_store.store import Mark, Store


class AuditLog:
    """One append at a time; the signer makes the rows."""

    def __init__(self, store: Store, signer: Callable[[], Signer]) -> None:
        self._store = store
        self._files = AuditFiles(store)
        self._rows = AcknowledgedRows(store)
        self._signer = signer

    def append(self, fields: AuditFields, timestamp: str, request_id: str) -> str:
        """The event's HMAC, once it is durable; the same again for the same request.

        Raises RowsMissing where events that were acknowledged are gone, Conflict where the day's
        were packed already.
        """
        with self._store.locked(CHAIN_LOCK):
            self._rows.check_audit_log()
            last_line, newest_day = self._files.last_line()
            # An event that waited for the signer must not come before what was written since.
            day = max(timestamp[: len("2026-03-01")], newest_day)
            name = f"{AUDIT_FOLDER}/{day}{SEGMENT_SUFFIX}"
            packed = self._files.packed(day)
            if packed is not None:
                raise Conflict(
                    f"the events of {day} were packed into {packed}, and a second file of that day"
                    f" would hide them: unpack it to {name}, or wait for the next day",
                    path=name,
                )
            known = known_answer(self._store, name, request_id)
            if known is not None:
                return known
            size = self._store.size(name) or 0
            line = self._signer().make_audit_row(last_line, timestamp, fields)
            hmac = str(read_audit_row(line)["hmac"])
            append_line(self._store, name, line, Mark(request_id, size + len(line) + 1, hmac))
            return hmac
