"""Whether a run that is begun now could be finished: asked before any work is paid for."""

import os
from collections.abc import Callable
from pathlib import Path

from bernstein_formats.errors import StoreFailed
from bernstein_formats.paths import RUNS_FOLDER
from bernstein_runtime.places import Places


def readiness(places: Places, check_ledger: Callable[[], None]) -> Callable[[], None]:
    """A check that raises StoreFailed for what cannot be written, and as `check_ledger` does."""

    def check() -> None:
        signer = places.secrets_dir / "signer"
        for folder in (places.sdd_dir / RUNS_FOLDER, places.state_dir, places.secrets_dir, signer):
            _check_folder(folder)
        ledger = signer / "ledger.jsonl"
        if ledger.exists() and not (ledger.is_file() and os.access(ledger, os.R_OK | os.W_OK)):
            raise _unwritable(ledger)
        check_ledger()

    return check


def _check_folder(folder: Path) -> None:
    nearest = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise _unwritable(nearest)


def _unwritable(path: Path) -> StoreFailed:
    return StoreFailed(
        f"{path} cannot be written, so that a run begun now could not be recorded and sealed;"
        " see `bernstein services doctor`",
        path=path,
    )
