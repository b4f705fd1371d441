"""How far long work is: one line on stderr, on a terminal only, and not before it takes long."""

import sys
import time
from types import TracebackType
from typing import Final, Self

from bernstein_cli.output import beside, printable

_AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.1
_BAR_CELLS: Final = 24
_MEBIBYTE: Final = 1024 * 1024


class Progress:
    """Call it with bytes done and bytes in all (0: not known); it clears its line at the end."""

    def __init__(self, what: str) -> None:
        self._what = printable(what)
        self._next = time.monotonic() + _AFTER_SECONDS
        self._shown = False
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            beside("\r\x1b[K")

    def __call__(self, done_bytes: int, total_bytes: int = 0) -> None:
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        self._shown = True
        beside(f"\r\x1b[K{self._what} {progress_text(done_bytes, total_bytes)}")


def progress_text(done_bytes: int, total_bytes: int) -> str:
    """A bar and a percentage, or the amount where the total is not known."""
    if total_bytes <= 0:
        return f"{done_bytes / _MEBIBYTE:.1f} MiB"
    part = min(done_bytes / total_bytes, 1.0)
    full = int(part * _BAR_CELLS)
    return f"[{'#' * full}{'.' * (_BAR_CELLS - full)}] {part:4.0%}"
