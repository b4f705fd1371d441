"""The clock as an argument: nobody else reads it."""

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Two readings: wall time may jump, monotonic time must not."""

    def now_seconds(self) -> float:
        """Unix time."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary instant, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_seconds(self) -> float:
        return time.time()  # noqa: TID251 - this is the one place

    def monotonic_seconds(self) -> float:
        return time.monotonic()


@dataclass(slots=True)
class FixedClock:
    """A clock that a test sets."""

    now: float = 1_700_000_000.0
    monotonic: float = 0.0

    def now_seconds(self) -> float:
        return self.now

    def monotonic_seconds(self) -> float:
        return self.monotonic
