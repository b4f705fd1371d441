"""The peer's form of a run's seal: the last row of its spine commits to the journal's head."""

from hashlib import sha256

import structlog

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError
from bernstein_formats.spine import seal_fields
from bernstein_formats.spine_verify import verify_spine
from bernstein_journal.pending_macs import PendingMacs, SpineRow
from bernstein_runtime.clock import Clock
from bernstein_store.store import Store

WAITS = "the seal in the run's spine waits for the signer, and is added as soon as that is back"
NO_KEY = "there is no audit key, so spines get no seals; `bernstein services init` makes one"
log = structlog.get_logger()


class SpineSealer:
    """Adds the row. A run is finished and sealed by seal.json whether or not that works."""

    def __init__(self, store: Store, clock: Clock, pending: PendingMacs) -> None:
        self._store = store
        self._clock = clock
        self._pending = pending
        self._said_no_key = False

    def seal(self, run_id: str, head: str) -> str:
        """Add the seal unless it is there; what there is to know, "" if it is."""
        try:
            if self._is_sealed(run_id, head):
                return ""
            appended = self._pending.append(self._row(run_id, head))
        except BernsteinError as error:
            log.warning("spine_not_sealed", run_id=run_id, reason=error.reason, error=error.message)
            if "absent" in error.metadata:
                return self._no_key()
            return f"the run's spine has no seal: {error.message}"
        return WAITS if appended is None else ""

    def _no_key(self) -> str:
        """A project without an audit key is as its owner wants it; told once, not at each run."""
        text = "" if self._said_no_key else NO_KEY
        self._said_no_key = True
        return text

    def _is_sealed(self, run_id: str, head: str) -> bool:
        found = verify_spine(self._store.read(paths.spine_path(run_id)), None)
        return not found.errors and found.sealed_head == head

    def _row(self, run_id: str, head: str) -> SpineRow:
        digest = sha256()
        for chunk in self._store.read(paths.journal_path(run_id)):
            digest.update(chunk)
        now = int(self._clock.now_seconds() * 1_000_000) * 1000
        fields = seal_fields(run_id, head, digest.hexdigest(), now)
        return SpineRow(f"seal-{head[:48]}", run_id, fields)
