"""Contract 5, identifiers carry creation order: ULIDs that increase whatever the clock does.

Rules: docs/formats/determinism.md, section 6. A replay makes new ids; what must match is their
order, and each row says which row it replays.
"""

import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from ulid import ULID

from bernstein_formats.errors import InvalidInput

_RANDOM_BITS: Final = 80
_LAST: Final = 2**128 - 1
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class UlidFactory:
    """Makes the record ids of one process. Thread-safe."""

    def __init__(self, clock_ms: Callable[[], int], random80: Callable[[], int]) -> None:
        """`clock_ms` gives Unix milliseconds, `random80` a number of 80 bits."""
        self._clock_ms = clock_ms
        self._random80 = random80
        self._lock = threading.Lock()
        self._last = -1
        self._pid = os.getpid()

    @staticmethod
    def system() -> "UlidFactory":
        """This program's own, which reads the system's clock and randomness; all who make ids
        share it, so that their rows are in one order."""
        return _SYSTEM

    def new(self) -> str:
        """The next id, greater than every one before it.

        Where the clock stands still or goes back it is the one before plus one, which also raises
        the millisecond once the random bits are used up.
        """
        with self._lock:
            self._leave_parents_ids()
            millisecond = self._clock_ms()
            if self._last >> _RANDOM_BITS >= millisecond:
                made = self._last + 1
            else:
                made = (millisecond << _RANDOM_BITS) | self._random80()
            if made > _LAST:
                raise InvalidInput("the clock is beyond the last millisecond of a ULID; set it")
            self._last = made
        return str(ULID.from_int(made))

    def _leave_parents_ids(self) -> None:
        """In a forked program: the parent, which has the same last id, also goes on from it."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if self._last >= 0:
                millisecond = (self._last >> _RANDOM_BITS) + 1
                self._last = (millisecond << _RANDOM_BITS) | self._random80()


_SYSTEM: Final = UlidFactory(
    lambda: time.time_ns() // 1_000_000, lambda: secrets.randbits(_RANDOM_BITS)
)


def parse_ulid(text: str) -> str:
    """The id in its usual spelling; lower case is taken. Raises InvalidInput."""
    upper = text.upper() if text.isascii() else ""
    if not _ULID.fullmatch(upper):
        raise InvalidInput(
            f"{text[:40]!r} is no record id: 26 characters of Crockford base 32, 0 to 7 first",
            field="record_id",
        )
    return str(ULID.from_str(upper))


def first_unordered(record_ids: Sequence[str]) -> int | None:
    """Where ids first fail to increase; None where they do throughout."""
    pairs = enumerate(pairwise(record_ids), start=1)
    return next((at for at, (before, after) in pairs if before >= after), None)


def verify_replay_links(
    replayed: Sequence[tuple[str, str | None]], originals: Sequence[str]
) -> str:
    """What is wrong with a replay's links, empty for nothing.

    `replayed` are record id and replay_of_event_id of each row. The rows, in the order of their
    ids, must link to the originals, in theirs, one to one, and share no id with them.
    """
    new = [record_id for record_id, _ in replayed]
    if len(new) != len(originals):
        return f"{len(new)} rows replay {len(originals)}"
    shared = set(new) & set(originals)
    if shared or len(set(new)) != len(new):
        return f"an id is used twice: {min(shared or new)}"
    in_order = [link for _, link in sorted(replayed)]
    for at, (link, original) in enumerate(zip(in_order, sorted(originals), strict=True)):
        if link != original:
            return f"row {at} links to {link}, not to {original}"
    return ""
