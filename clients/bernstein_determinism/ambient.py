"""Forbids clock, randomness, environment and files while a piece of code runs, for tests.

What the contracts call pure must not look at any of these. The interpreter tells of each call
before it is made, so that `from time import time` made long ago is caught as well.
"""

import gc
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from types import CodeType, FrameType
from typing import Any, Final

from bernstein_formats.errors import AmbientAccessError

_CLOCK_NAMES: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("clock_gettime", "clock_gettime_ns", "localtime", "ctime"),
)
_OS_NAMES: Final = {
    "urandom": "randomness",
    "getrandom": "randomness",
    "open": "a file",
    "listdir": "a file",
    "scandir": "a file",
    "stat": "a file",
    "lstat": "a file",
}
_DATE_NAMES: Final = frozenset({"now", "utcnow", "today"})

# Of the C functions that are asked for by themselves.
_FUNCTIONS: Final[dict[object, str]] = {
    **{getattr(time, name): "the clock" for name in _CLOCK_NAMES if hasattr(time, name)},
    **{getattr(os, name): what for name, what in _OS_NAMES.items() if hasattr(os, name)},
    open: "a file",
}


def _code_of(function: object) -> CodeType:
    found = getattr(function, "__code__", None)
    assert isinstance(found, CodeType)
    return found


# Of the Python functions of the standard library.
_CODES: Final[dict[CodeType, str]] = {
    _code_of(type(os.environ).__getitem__): "the environment",
    _code_of(type(os.environ).__iter__): "the environment",
    _code_of(type(os.environ).copy): "the environment",
    _code_of(uuid.uuid1): "the clock",
}
_SEED: Final = _code_of(random.Random.seed)
_IMPORTING: Final = "<frozen importlib"
_Profile = Callable[[FrameType, str, Any], None]


class _Watch:
    """Told of every call; remembers the first that is forbidden."""

    def __init__(self) -> None:
        self.refused: AmbientAccessError | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        found = None
        if event == "c_call":
            found = _forbidden_function(argument)
        elif event == "call":
            found = _forbidden_code(frame)
        if found is None or _is_for_the_interpreter(frame):
            return
        what, name = found
        error = AmbientAccessError(
            f"{name} was called: {what} is not to be looked at here; take what it gives as an"
            " argument",
            what=what,
            call=name,
        )
        self.refused = self.refused or error
        raise error


@contextmanager
def forbid_ambient() -> Iterator[None]:
    """Raise AmbientAccessError where the block, or a thread that it starts, looks around.

    An access that the block swallowed is raised at its end. Imports may read files.
    """
    watch = _Watch()
    before, threads_before = sys.getprofile(), threading.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(threads_before)
    if watch.refused is not None:
        raise watch.refused


def _forbidden_function(function: Any) -> tuple[str, str] | None:
    try:
        what = _FUNCTIONS.get(function)
    except TypeError:  # a method of something that cannot be hashed
        what = None
    name = str(getattr(function, "__qualname__", function))
    if what is not None:
        return what, f"{getattr(function, '__module__', None) or 'builtins'}.{name}"
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        is_clock = function.__name__ in _DATE_NAMES and issubclass(owner, date)
        return ("the clock", name) if is_clock else None
    if type(owner) is random.Random and owner is _shared_random():
        return "randomness", f"random.{function.__name__}"
    return None


def _forbidden_code(frame: FrameType) -> tuple[str, str] | None:
    what = _CODES.get(frame.f_code)
    if what is not None:
        return what, frame.f_code.co_qualname
    if frame.f_code is _SEED and frame.f_locals.get("a") is None:
        return "randomness", "random.Random() without a seed"
    return None


def _shared_random() -> object:
    """The generator behind the functions of `random`; seeded ones of one's own are fine."""
    return getattr(random.random, "__self__", None)


def _is_for_the_interpreter(frame: FrameType | None) -> bool:
    """Whether an import or the garbage collector is at work, which the block did not call."""
    collecting = {getattr(each, "__code__", None) for each in gc.callbacks}
    while frame is not None:
        if frame.f_code in collecting or frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        frame = frame.f_back
    return False
