"""Whether a service can do its work, looked at every few seconds: for probes, which must be
answered at once, also while a database says nothing.

Alive is a process that answers at all. Ready is one whose store can be reached and written.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from bernstein_formats.errors import BernsteinError
from bernstein_runtime import metrics

EVERY_SECONDS: Final = 2.0
# A check that takes longer has found what is wrong.
LATE_SECONDS: Final = 6.0
STARTING: Final = "STARTING"
LATE: Final = "UNAVAILABLE"
log = structlog.get_logger()


class Readiness:
    """Safe for any number of threads."""

    def __init__(self) -> None:
        self._check: Callable[[], None] = lambda: None
        self._stopped = threading.Event()
        self._refusal = STARTING
        self._checked_at = time.monotonic()

    @property
    def refusal(self) -> str:
        """Why it is not ready, in one reason word; empty when it is."""
        is_late = time.monotonic() - self._checked_at > LATE_SECONDS
        return LATE if is_late and not self._refusal else self._refusal

    def watch(self, check: Callable[[], None]) -> None:
        """Begin; `check` raises BernsteinError for what keeps the service from its work."""
        self._check = check
        self._look()
        threading.Thread(target=self._look_on, name="readiness", daemon=True).start()

    def stop(self) -> None:
        """It will not be ready again."""
        self._refusal = LATE
        self._stopped.set()

    def _look_on(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        refusal, said = "", ""
        try:
            self._check()
        except BernsteinError as error:
            refusal, said = error.reason, error.message
        if self._stopped.is_set():
            return
        if refusal not in {self._refusal, ""}:
            log.warning("not_ready", reason=refusal, error=said)
        elif not refusal and self._refusal not in {STARTING, ""}:
            log.info("ready")
        self._refusal = refusal
        self._checked_at = time.monotonic()
        metrics.READY.set(not refusal)
