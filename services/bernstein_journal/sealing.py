"""Ending a run: its file is complete, the signer seals it, the seal is kept beside it."""

from collections.abc import Callable

from bernstein_formats import paths
from bernstein_formats.errors import ForeignWriter, LedgerRefused, Unavailable
from bernstein_formats.seal import Seal, parse_seal
from bernstein_formats.testimony import newest_seal
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.ledger_view import LedgerView
from bernstein_journal.signer import Signer
from bernstein_store.store import Store

TRIES_MAX = 8


def is_incomplete(store: Store, run_id: str) -> bool:
    """Whether a run was begun here and never ended: it goes on, or rows may be missing."""
    if store.size(paths.seal_path(run_id)) is not None:
        return False
    return store.size(paths.incomplete_path(run_id)) is not None


def was_sealed(store: Store, run_id: str) -> bool:
    """Whether a run is finished, also when its seal.json is gone."""
    is_there = store.size(paths.seal_path(run_id)) is not None
    return is_there or store.get(paths.interim_seal_path(run_id)) == b""


class Sealer:
    """Has runs sealed, and remembers how far the ledger had come."""

    def __init__(
        self, store: Store, origin: str, signer: Callable[[], Signer], ledger: LedgerView
    ) -> None:
        self._store = store
        self._origin = origin
        self._signer = signer
        self._ledger = ledger

    def check_ledger(self) -> None:
        """Raise LedgerRefused when the signer that sealed here is gone, before a run is begun."""
        known = self._checkpoint()
        if known is None:
            return
        try:
            key = self._ledger.seal_key()
        except Unavailable:
            return  # a fleet's signer, which is back before the run ends
        if known.public_key != key:
            raise LedgerRefused(
                f"runs here were sealed with another key than the one beside {self._ledger.place}: "
                "the signer's folder was lost, or HOME is another; restore it, or begin a new "
                "ledger with `bernstein services init --new-ledger`",
                path=self._ledger.place,
            )

    def begin_ledger(self) -> None:
        """Go on with whatever ledger the signer has now; what was known of the old one is kept."""
        known = self._checkpoint()
        if known is not None:
            self._store.put(f"svc/checkpoint-{known.entry.entry_hash()}.json", known.file_bytes())
            self._store.put(paths.CHECKPOINT, b"")

    def finish(self, run_id: str) -> Seal:
        """Seal a complete run for good; the same seal again when it has one."""
        name = paths.seal_path(run_id)
        stored = self._store.get(name)
        if stored is not None:
            self._store.remove(paths.incomplete_path(run_id))
            return parse_seal(stored)
        seal_json = self._sealed_whole(run_id, name)
        self._store.put(paths.interim_seal_path(run_id), b"")
        self._store.remove(paths.incomplete_path(run_id))
        return parse_seal(seal_json)

    def _sealed_whole(self, run_id: str, name: str) -> bytes:
        """The seal over all of the journal, stored as its end."""
        journal_name = paths.journal_path(run_id)
        for _ in range(TRIES_MAX):
            size = self._store.size(journal_name) or 0
            seal_json = self.seal(run_id, size)
            try:
                self._store.end_log(journal_name, size, name, seal_json)
            except ForeignWriter:
                continue  # rows came by another journal meanwhile; the run ends with them
            return seal_json
        raise Unavailable(f"rows are appended to run {run_id} all the time; try again")

    def seal_for_receipt(self, run_id: str, size: int) -> bytes:
        """Likewise, but the run goes on if it is not finished: such a seal is kept apart."""
        seal_json = self.seal(run_id, size)
        if not was_sealed(self._store, run_id):
            self._store.put(paths.interim_seal_path(run_id), seal_json)
        return seal_json

    def seal(self, run_id: str, size: int) -> bytes:
        """The signer's seal over the first `size` bytes of a run's journal.

        Raises RowsMissing where rows that were acknowledged are gone.
        """
        AcknowledgedRows(self._store).check(paths.journal_path(run_id))
        known = self._checkpoint()
        seal_json = self._signer().seal(
            origin=self._origin,
            run_id=run_id,
            checkpoint=known.file_bytes() if known is not None else b"",
            size=size,
            journal=lambda: self._store.read(paths.journal_path(run_id), 0, size),
        )
        if known is None or known.entry.body.index < parse_seal(seal_json).entry.body.index:
            self._store.put(paths.CHECKPOINT, seal_json)
        return seal_json

    def _checkpoint(self) -> Seal | None:
        return newest_seal(self._store.get(paths.CHECKPOINT), self._origin)
