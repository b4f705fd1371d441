"""Ending a run: its file is complete, the signer seals it, the seal is kept beside it."""

from collections.abc import Callable

from bernstein_formats import paths
from bernstein_formats.seal import Seal, parse_seal
from bernstein_journal.signer import Signer
from bernstein_store.store import Store

# The newest seal this journal has seen: a signer whose ledger does not reach it was put back.
CHECKPOINT = "svc/checkpoint.json"


class Sealer:
    """Has runs sealed, and remembers how far the ledger had come."""

    def __init__(self, store: Store, origin: str, signer: Callable[[], Signer]) -> None:
        self._store = store
        self._origin = origin
        self._signer = signer

    def finish(self, run_id: str) -> Seal:
        """Seal a complete run for good; the same seal again when it has one."""
        name = paths.seal_path(run_id)
        stored = self._store.get(name)
        if stored is not None:
            return parse_seal(stored)
        seal_json = self.seal(run_id, self._store.size(paths.journal_path(run_id)) or 0)
        self._store.put(name, seal_json)
        return parse_seal(seal_json)

    def seal(self, run_id: str, size: int) -> bytes:
        """The signer's seal over the first `size` bytes of a run's journal."""
        seal_json = self._signer().seal(
            origin=self._origin,
            run_id=run_id,
            checkpoint=self._store.get(CHECKPOINT) or b"",
            size=size,
            journal=lambda: self._store.read(paths.journal_path(run_id), 0, size),
        )
        self._advance(seal_json)
        return seal_json

    def _advance(self, seal_json: bytes) -> None:
        known = self._store.get(CHECKPOINT)
        index = parse_seal(seal_json).entry.body.index
        if known is None or parse_seal(known).entry.body.index < index:
            self._store.put(CHECKPOINT, seal_json)
