"""Whether a run that is begun now could be finished: asked before any work is paid for."""

import os
from collections.abc import Callable

from bernstein_runtime.disk import check_folder, unwritable
from bernstein_runtime.places import Places
from bernstein_store.store import Store


def readiness(places: Places, store: Store, check_ledger: Callable[[], None]) -> Callable[[], None]:
    """A check that raises StoreFailed for what cannot be written, and as `check_ledger` does."""

    def check() -> None:
        store.check()
        signer = places.secrets_dir / "signer"
        for folder in (places.state_dir, places.secrets_dir, signer):
            check_folder(folder)
        ledger = signer / "ledger.jsonl"
        if ledger.exists() and not (ledger.is_file() and os.access(ledger, os.R_OK | os.W_OK)):
            raise unwritable(ledger)
        check_ledger()

    return check
