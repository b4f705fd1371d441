"""What is known of the signer's ledger without having anything signed: its key, and whether it is
there. Beside a project's own signer these are files; a fleet's signer is asked."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from bernstein_formats.errors import Unavailable
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_journal.signer import Signer
from bernstein_runtime.disk import check_folder, unwritable
from bernstein_runtime.places import Places
from bernstein_runtime.regular_file import read_regular

# How long an answer of the signer is believed.
KNOWN_SECONDS: Final = 60.0


class LedgerView(Protocol):
    """Thread-safe."""

    @property
    def place(self) -> str:
        """Where the ledger is, for people."""
        ...

    def seal_key(self) -> PublicKey | None:
        """What seals are checked with; None where there is no key.

        Raises KeyUnusable, OSError, and Unavailable where nobody can tell now.
        """
        ...

    def is_there(self) -> bool:
        """Whether it is worth while to ask the signer for a seal."""
        ...

    def check(self) -> None:
        """Raises StoreFailed where the signer could write nothing."""
        ...


@dataclass(frozen=True, slots=True)
class OwnLedger:
    """The one of this project's signer: its files stand on this host."""

    places: Places

    @property
    def place(self) -> str:
        return str(self._file)

    def seal_key(self) -> PublicKey | None:
        try:
            return parse_public_pem(read_regular(self.places.secrets_dir / "seal-key.pub.pem"))
        except FileNotFoundError:
            return None

    def is_there(self) -> bool:
        return self._file.exists()

    def check(self) -> None:
        for folder in (self.places.secrets_dir, self._file.parent):
            check_folder(folder)
        if self.is_there() and not (
            self._file.is_file() and os.access(self._file, os.R_OK | os.W_OK)
        ):
            raise unwritable(self._file)

    @property
    def _file(self) -> Path:
        return self.places.secrets_dir / "signer" / "ledger.jsonl"


@dataclass(slots=True)
class FleetLedger:
    """The fleet's, for one origin. Runs go on while its signer is away."""

    origin: str
    signer: Callable[[], Signer]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _key: PublicKey | None = None
    _known_until: float = 0.0

    @property
    def place(self) -> str:
        return f"the signer's ledger of {self.origin}"

    def seal_key(self) -> PublicKey | None:
        with self._lock:
            if time.monotonic() > self._known_until:
                try:
                    self._key = parse_public_pem(self.signer().seal_key())
                except Unavailable:
                    if self._key is None:
                        raise
                else:
                    self._known_until = time.monotonic() + KNOWN_SECONDS
            return self._key

    def is_there(self) -> bool:
        return True

    def check(self) -> None:
        """Nothing of it is on this host."""
