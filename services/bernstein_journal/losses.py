"""Going on with a log whose end is gone, once the operator says so: put on record first."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from bernstein_formats import paths
from bernstein_formats.accepted_loss import AcceptedLoss
from bernstein_formats.audit_events import loss_accepted
from bernstein_formats.audit_log import CHAIN_LOCK
from bernstein_formats.errors import BernsteinError
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.macs import Macs
from bernstein_runtime.clock import Clock
from bernstein_store.store import Store

log = structlog.get_logger()


class Losses:
    """Accepts one loss at a time."""

    def __init__(self, store: Store, clock: Clock, macs: Macs) -> None:
        self._store = store
        self._clock = clock
        self._macs = macs
        self._rows = AcknowledgedRows(store)

    def accept(self, name: str | None, why: str) -> list[str]:
        """What is gone from a log, None being the audit log; from now on nobody misses it."""
        lock: AbstractContextManager[object] = nullcontext()
        if name is None:
            lock = self._store.locked(CHAIN_LOCK)
        with lock:
            losses = list(self._accepted(name, why))
        for loss in losses:
            self._tell(loss)
        return [f"{loss.name}: {loss.lost}" for loss in losses]

    def _accepted(self, name: str | None, why: str) -> Iterator[AcceptedLoss]:
        while True:
            found = self._rows.newest_audit_log() if name is None else name
            lost = self._rows.missing_events() if name is None else self._rows.missing(name)
            if not lost or found is None:
                return
            now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)
            loss = AcceptedLoss(f"{now:%Y-%m-%dT%H:%M:%SZ}", found, lost, why)
            self._record(loss)
            self._store.accept_log(found)
            yield loss

    def _record(self, loss: AcceptedLoss) -> None:
        record = self._store.open_log(paths.LOSSES)
        try:
            record.append(loss.as_line(), [])
        finally:
            record.close()

    def _tell(self, loss: AcceptedLoss) -> None:
        """A project without an audit key keeps no audit log; the record is there in any case."""
        try:
            fields = loss_accepted(loss.name, loss.lost, loss.why)
            self._macs.append_audit(fields, f"loss-{uuid4().hex}")
        except BernsteinError as error:
            log.warning("loss_not_audited", name=loss.name, reason=error.reason)
