"""Functions that look around, and their replacement while somebody forbids it; see `ambient`."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from types import FrameType, FunctionType
from typing import Any, Final

# Is told what is looked at, by which call, and in whose frame.
Tell = Callable[[str, str, FrameType | None], None]

_NAMES: Final[dict[tuple[Any, str], tuple[str, ...]]] = {
    (time, "the clock"): (
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
        *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
        *("clock_gettime", "clock_gettime_ns", "gmtime", "localtime", "ctime", "asctime"),
        *("strftime", "mktime"),  # likewise by the time zone
    ),
    (os, "the clock"): ("times",),
    (os, "randomness"): ("urandom", "getrandom"),
    # Those that raise no audit event.
    (os, "a file"): (
        *("stat", "lstat", "fstat", "statvfs", "fstatvfs", "access", "readlink", "getcwd"),
        *("getcwdb", "read", "readv", "pread", "preadv"),
    ),
    # The names that the generators of `random` and `secrets` call it by.
    (random, "randomness"): ("_urandom",),
}

# Every C function in question by what it looks at, as it was before it was replaced.
FUNCTIONS: Final[dict[object, str]] = {
    getattr(owner, name): what
    for (owner, what), names in _NAMES.items()
    for name in names
    if hasattr(owner, name)
}


class Stubs:
    """Puts functions that tell in the place of those that look, and takes them away again."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._originals: list[tuple[Any, str, Callable[..., Any]]] = []

    def put(self) -> None:
        for owner, name, what in _places():
            original = getattr(owner, name)
            self._originals.append((owner, name, original))
            setattr(owner, name, self._telling(owner, name, what, original))

    def take_away(self) -> None:
        while self._originals:
            setattr(*self._originals.pop())

    def _telling(
        self, owner: Any, name: str, what: str, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        call = f"{owner.__name__}.{name.removeprefix('_')}" if name[:2] != "__" else "os.environ"

        @wraps(original, updated=())
        def stub(*args: Any, **kwargs: Any) -> Any:
            self._tell(what, call, sys._getframe(1))  # noqa: SLF001 - who calls
            return original(*args, **kwargs)

        return stub


def _places() -> Iterator[tuple[Any, str, str]]:
    """Where each of them is looked up, and what it looks at."""
    for (owner, what), names in _NAMES.items():
        yield from ((owner, name, what) for name in names if hasattr(owner, name))
    shared = getattr(random.random, "__self__", None)
    for name, each in [*vars(random).items()]:
        if getattr(each, "__self__", None) is shared:
            yield random, name, "randomness"
    environment = type(os.environ)
    for name, each in [*vars(environment).items()]:
        if isinstance(each, FunctionType) and name != "__init__":
            yield environment, name, "the environment"
