"""The ledgers of a signer: one for a project's own, one an origin for the signer of a fleet.

Each origin's is a folder of its own, so that one that was damaged stops no other, and what is
opened is verified from its beginning.
"""

import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from bernstein_runtime.clock import Clock
from bernstein_signer.key import Key, write_new
from bernstein_signer.ledger import LEDGER_FILE, Ledger

FOLDER: Final = "origins"

# Gives the ledger of an origin.
LedgerOf = Callable[[str], Ledger]


class Ledgers:
    """Opened when first asked for, and kept. Thread-safe."""

    def __init__(self, folder: Path, key: Key, clock: Clock) -> None:
        self._folder = folder / FOLDER
        self._key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, Ledger] = {}

    def of(self, origin: str) -> Ledger:
        """Raises LedgerRefused, Conflict, StoreFailed."""
        with self._lock:
            if origin not in self._open:
                folder = self._folder / sha256(origin.encode()).hexdigest()[:32]
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not (folder / LEDGER_FILE).exists():
                    write_new(folder / LEDGER_FILE, b"")
                self._open[origin] = Ledger(folder, self._key, self._clock)
            return self._open[origin]

    def __len__(self) -> int:
        """Entries of those that are open."""
        with self._lock:
            return sum(map(len, self._open.values()))

    def close(self) -> None:
        """Give all of them to another process."""
        with self._lock:
            for ledger in self._open.values():
                ledger.close()
            self._open.clear()


class OneLedger:
    """A project's own, for whatever origin."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of(self, _: str) -> Ledger:
        return self._ledger

    def __len__(self) -> int:
        return len(self._ledger)

    def close(self) -> None:
        self._ledger.close()
