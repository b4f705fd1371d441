"""Forbids clock, randomness, environment, files and sockets while a piece of code runs, for tests.

What the contracts call pure must look at none of these. Three nets, each for what the others miss:

* The interpreter's profiler tells of each call that Python code of the block makes, so that
  `from time import time` made long ago is caught as well; likewise in threads that it starts.
* The functions themselves are replaced while the block runs (`ambient_stubs`), so that C code
  which was given one (`map(os.stat, ...)`) and threads that waited for work before are caught.
* The interpreter's audit events tell of files, sockets and processes, whoever asks for them.

Not caught, and named in docs/determinism.md: `datetime.now` and C functions that were looked up
before the block, where only C code or a thread that ran before calls them; the local time zone in
`datetime.astimezone`, `fromtimestamp`, `timestamp` and `time.tzname`; the plain dictionary
`posix.environ`; the order of sets, `id()` and `hash()` of text;
generators, clocks and files of extension modules that go past all of this (NumPy's, say); a file
that is open already and read by a `for`; threads that were busy when the block began; and whatever
an import does.
"""

import gc
import io
import queue
import random
import selectors
import socket
import sys
import threading
import uuid
from asyncio import base_events
from collections.abc import Collection, Iterator
from concurrent.futures import _base as futures
from concurrent.futures import thread
from contextlib import contextmanager
from datetime import date
from itertools import takewhile
from multiprocessing import pool
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, Final

from bernstein_determinism.ambient_stubs import FUNCTIONS, Stubs
from bernstein_formats.errors import AmbientAccessError

_Found = tuple[str, str]

_DATE_NAMES: Final = frozenset({"now", "utcnow", "today"})
_SHARED_RANDOM: Final = getattr(random.random, "__self__", None)
_MEMORY_FILES: Final = (io.BytesIO, io.StringIO)

# Audit events, by their beginnings; the first that fits.
_EVENTS: Final = (
    (("os.putenv", "os.unsetenv"), "the environment"),
    (("os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system"), "a process"),
    (("subprocess.", "pty.spawn"), "a process"),
    (("socket.", "urllib.", "http.client.", "ftplib.", "smtplib.", "poplib."), "a socket"),
    (("open", "os.", "shutil.", "glob.", "tempfile.", "mmap.", "sqlite3.connect"), "a file"),
    (("builtins.input",), "a file"),
)

# Python functions of the standard library that go to C functions which nobody can replace.
_CODES: Final[dict[CodeType, str]] = {uuid.uuid1.__code__: "the clock"}
_SEED: Final = random.Random.seed.__code__
_IMPORTING: Final = "<frozen importlib"
# A thread that waits looks at the clock for nobody's sake.
_WAITING: Final = frozenset(
    each.__file__ for each in (threading, queue, selectors, base_events, futures, thread, pool)
)


_WORKER_NAMES: Final = frozenset({"wait", "get", "_worker", "worker"})


class _Watch:
    """A block that runs; remembers the first look of it, or of anybody meanwhile."""

    def __init__(self) -> None:
        self.refused: AmbientAccessError | None = None
        self._own = threading.get_ident()
        # The calls that the block is in, while it runs: an import among them is none of its own.
        self.outer = frozenset(_frames(sys._getframe()))  # noqa: SLF001 - as below
        # All threads of the interpreter, also those that `threading` does not know.
        running = sys._current_frames()  # noqa: SLF001 - there is no other list of them
        self._before = set(running)
        self._idle = {ident for ident, frame in running.items() if _waits_for_work(frame)}

    def owns(self, thread: int) -> bool:
        """Whether a thread is the block's: it runs the block, or began after it."""
        return thread == self._own or thread not in self._before

    def may_use(self, thread: int) -> bool:
        """Whether a thread that ran before waited, for work that may now be the block's; one that
        was busy goes about its own."""
        return thread in self._idle


class _Watches:
    """The blocks that run, and what watches for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[_Watch, ...] = ()
        self._stubs = Stubs(self.tell)
        self._is_hooked = False

    def enter(self, watch: _Watch) -> None:
        with self._lock:
            if not self._is_hooked:
                sys.addaudithook(self._audited)  # for good: idle while no block runs
                self._is_hooked = True
            if not self._running:
                self._stubs.put()
            self._running = (*self._running, watch)

    def leave(self, watch: _Watch) -> None:
        with self._lock:
            self._running = tuple(each for each in self._running if each is not watch)
            watch.outer = frozenset()
            if not self._running:
                self._stubs.take_away()

    def tell(self, what: str, call: str, frame: FrameType | None) -> None:
        """Somebody looks at `what`. Raises AmbientAccessError in a thread of a block; a thread that
        ran before, which may have nothing to do with it, gets what it asked for."""
        thread = threading.get_ident()
        watched = [each for each in self._running if each.owns(thread)]
        told = watched or [each for each in self._running if each.may_use(thread)]
        outer = {each for watch in told for each in watch.outer}
        if not told or _is_for_the_interpreter(frame, outer, waiting_too=not watched):
            return
        where = "" if watched else f" in thread {threading.current_thread().name}, which ran before"
        error = AmbientAccessError(
            f"{call} was called{where}: {what} is not to be looked at here; take what it gives as"
            " an argument",
            what=what,
            call=call,
        )
        for each in told:
            each.refused = each.refused or error
        if watched:
            raise error

    def _audited(self, event: str, _arguments: object) -> None:
        if not self._running:
            return
        for beginnings, what in _EVENTS:
            if event.startswith(beginnings):
                self.tell(what, event, sys._getframe(1))  # noqa: SLF001 - who asked
                return


_watches: Final = _Watches()


@contextmanager
def forbid_ambient() -> Iterator[None]:
    """Raise AmbientAccessError where the block, or a thread that it starts, looks around.

    A look that the block swallowed is raised at its end, and so is that of a thread that waited for
    work when it began (a pool's, say), which itself goes on. What is not caught is listed on top of
    this module.
    """
    watch = _Watch()
    before, threads_before = sys.getprofile(), threading.getprofile()
    _watches.enter(watch)
    threading.setprofile(_profiled)
    sys.setprofile(_profiled)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(threads_before)
        _watches.leave(watch)
    if watch.refused is not None:
        raise watch.refused


def _profiled(frame: FrameType, event: str, argument: Any) -> None:
    found = None
    if event == "c_call":
        found = _forbidden_function(argument)
    elif event == "call":
        found = _forbidden_code(frame)
    if found is not None:
        _watches.tell(*found, frame)


def _forbidden_function(function: Any) -> _Found | None:
    if type(function) is not BuiltinFunctionType:
        return None
    name = function.__qualname__
    what = FUNCTIONS.get(function)
    owner = function.__self__
    if what is not None:
        return what, f"{function.__module__ or 'builtins'}.{name}"
    if owner is _SHARED_RANDOM:
        return "randomness", f"random.{function.__name__}"
    if isinstance(owner, type):
        is_clock = function.__name__ in _DATE_NAMES and issubclass(owner, date)
        return ("the clock", name) if is_clock else None
    if isinstance(owner, socket.SocketType):
        return "a socket", name
    reads = function.__name__.startswith(("read", "peek")) and isinstance(owner, io.IOBase)
    return ("a file", name) if reads and not isinstance(owner, _MEMORY_FILES) else None


def _forbidden_code(frame: FrameType) -> _Found | None:
    what = _CODES.get(frame.f_code)
    if what is not None:
        return what, frame.f_code.co_qualname
    if frame.f_code is _SEED and frame.f_locals.get("a") is None:
        return "randomness", "random.Random() without a seed"
    return None


def _waits_for_work(frame: FrameType) -> bool:
    """Whether a thread sits in a pool or before a queue."""
    code = frame.f_code
    return code.co_filename in _WAITING and code.co_name in _WORKER_NAMES


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_for_the_interpreter(
    frame: FrameType | None, outer: Collection[FrameType], *, waiting_too: bool
) -> bool:
    """Whether an import or the garbage collector is at work, which the block did not call, or, in
    a thread that ran before, one that waits and counts the time."""
    collecting = {getattr(each, "__code__", None) for each in gc.callbacks}
    if waiting_too and frame is not None and frame.f_code.co_filename in _WAITING:
        return True
    inner = takewhile(lambda each: each not in outer, _frames(frame))
    return any(each.f_code in collecting or _imports(each.f_code) for each in inner)


def _imports(code: CodeType) -> bool:
    """Whether this is the interpreter's import at work; its loaders also read files for others."""
    return code.co_filename.startswith(_IMPORTING) and code.co_name != "get_data"
