"""Whether a run that is begun now could be finished: asked before any work is paid for."""

from collections.abc import Callable

from bernstein_journal.ledger_view import LedgerView
from bernstein_runtime.disk import check_folder
from bernstein_runtime.places import Places
from bernstein_store.store import Store


def readiness(
    places: Places, store: Store, ledger: LedgerView, check_key: Callable[[], None]
) -> Callable[[], None]:
    """A check that raises StoreFailed for what cannot be written, and as `check_key` does."""

    def check() -> None:
        store.check()
        check_folder(places.state_dir)
        ledger.check()
        check_key()

    return check
