"""`forbid_ambient`: what it catches, in which threads, and that nothing is left of it."""

import datetime as dt
import hashlib
import importlib
import io
import mmap
import operator
import os
import pkgutil
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bernstein_determinism.ambient import forbid_ambient
from bernstein_formats import errors

# As it is when a block begins.
OPEN = Path(__file__).open("rb")  # noqa: SIM115 - open before
PAIR = socket.socketpair()
DEFAULTS: Any = defaultdict


gmtime_of_long_ago, strftime_of_long_ago = time.gmtime, time.strftime

LOOKS = {
    "time": lambda: time.time(),  # noqa: PLW0108 - looked up in the block
    "an old time": time.time,
    "monotonic": time.monotonic,
    "strftime": lambda: time.strftime("%H"),
    "gmtime": time.gmtime,
    "localtime": time.localtime,
    "ctime": time.ctime,
    "asctime": time.asctime,
    "an old gmtime": gmtime_of_long_ago,
    "an old strftime": lambda: strftime_of_long_ago("%H"),
    "times": os.times,
    "now": dt.datetime.now,
    "today": dt.date.today,
    "random": random.random,
    "randint": lambda: random.randint(1, 6),  # noqa: S311 - no secret
    "unseeded": random.Random,
    "urandom": lambda: os.urandom(1),
    "uuid4": uuid.uuid4,
    "uuid1": uuid.uuid1,
    "secrets": lambda: secrets.token_hex(1),
    "environ": lambda: os.environ["PATH"],
    "getenv": lambda: os.getenv("PATH"),
    "all of environ": lambda: dict(os.environ),
    "len of environ": lambda: len(os.environ),
    "repr of environ": lambda: repr(os.environ),
    "in environ": lambda: "PATH" in os.environ,
    "items of environ": lambda: list(os.environ.items()),
    "environ or": lambda: os.environ | {},
    "bytes of environ": lambda: os.environb[b"PATH"],
    "open": lambda: Path(__file__).read_bytes(),
    "os.open": lambda: os.close(os.open(__file__, os.O_RDONLY)),
    "listdir": lambda: list(Path(__file__).parent.iterdir()),
    "stat": lambda: Path(__file__).exists(),
    "a folder": Path.cwd,
    "a folder in bytes": os.getcwdb,
    "a descriptor": lambda: os.fstat(OPEN.fileno()),
    "a vector": lambda: os.readv(OPEN.fileno(), [bytearray(1)]),
    "a mapped file": lambda: mmap.mmap(OPEN.fileno(), 0, prot=mmap.PROT_READ).close(),
    "a package's file": lambda: pkgutil.get_data("bernstein_formats", "errors.py"),
    "an open file": lambda: OPEN.read(1),
    "database": lambda: sqlite3.connect(":memory:").close(),
    "socket": lambda: socket.socket().close(),
    "name": lambda: socket.getaddrinfo("127.0.0.1", 1),
    "an open socket": PAIR[0].getsockname,
    "process": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "map in C": lambda: list(map(os.stat, [__file__])),
    "iter in C": lambda: next(iter(time.time, None)),
    "default in C": lambda: DEFAULTS(time.time)["x"],
    "sort key in C": lambda: max([1], key=random.getrandbits),
    "environ in C": lambda: operator.itemgetter("PATH")(os.environ),
    "open in C": lambda: next(map(open, [__file__])).close(),
}


@pytest.fixture(scope="module", autouse=True)
def _closed():
    yield
    OPEN.close()
    for each in PAIR:
        each.close()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_looking_around_is_forbidden(look):
    look()
    with pytest.raises(errors.AmbientAccessError), forbid_ambient():
        look()
    look()


@pytest.mark.parametrize(
    "name", ["time", "strftime", "uuid4", "secrets", "len of environ", "open", "socket"]
)
def test_a_thread_that_ran_before_gets_its_answer_and_is_told_at_the_end(name):
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        pool.submit(int).result()
        told = pytest.raises(errors.AmbientAccessError, match="pool_0, which ran before")
        with told, forbid_ambient():
            assert pool.submit(lambda: (LOOKS[name](), 7)[1]).result() == 7


def test_a_thread_that_only_waits_is_not_told():
    begun, stop = threading.Event(), threading.Event()

    def wait():
        while not stop.wait(0.001):
            begun.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    with forbid_ambient():
        begun.clear()
        begun.wait()
        begun.clear()
        begun.wait()
    stop.set()
    thread.join()
    assert begun.is_set()


def test_a_thread_that_was_busy_before_goes_about_its_own():
    going, rounds = [True], [0]

    def work():
        while going:
            time.time()
            os.getenv("PATH")
            rounds[0] += 1

    def wait_for_a_round():
        before = rounds[0]
        while rounds[0] < before + 2:
            pass
        return rounds[0]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    before = wait_for_a_round()
    try:
        with forbid_ambient():
            assert wait_for_a_round() > before
    finally:
        going.clear()
        thread.join()


def test_threads_of_the_block_are_its_own():
    at_the_end, in_the_thread = (pytest.raises(errors.AmbientAccessError) for _ in range(2))
    with at_the_end, forbid_ambient(), ThreadPoolExecutor(1) as pool, in_the_thread:
        pool.submit(time.time).result()


def test_nothing_is_left_of_blocks_that_lie_within_each_other():
    before = time.time, os.stat, random.random, type(os.environ).__len__, sys.getprofile()
    with forbid_ambient():
        with forbid_ambient():
            assert time.time is not before[0]
        assert time.time is not before[0]
    assert before == (time.time, os.stat, random.random, type(os.environ).__len__, sys.getprofile())


def test_a_look_that_was_swallowed_or_made_in_a_thread_is_told_at_the_end():
    def swallowed():
        try:
            time.time()
        except errors.AmbientAccessError:
            return

    with pytest.raises(errors.AmbientAccessError, match=r"time\.time"), forbid_ambient():
        swallowed()


def test_a_block_of_a_module_that_is_being_imported_is_watched_and_its_imports_are_not(
    tmp_path, monkeypatch
):
    text = """
        import sys, time
        from bernstein_determinism.ambient import forbid_ambient
        sys.modules.pop("colorsys", None)
        with forbid_ambient():
            import colorsys
        with forbid_ambient():
            time.time()
    """
    (tmp_path / "looks_while_imported.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(errors.AmbientAccessError, match=r"time\.time"):
        importlib.import_module("looks_while_imported")


def test_what_follows_from_its_arguments_is_allowed():
    with forbid_ambient():
        assert sorted([2, 1]) == [1, 2]
        assert 0 <= random.Random(1).random() < 1  # noqa: S311 - no secret
        assert dt.date(2026, 1, 2).isoformat() == "2026-01-02"
        assert io.BytesIO(b"x").read() == b"x"
        assert hashlib.sha256(b"").hexdigest()[:2] == "e3"


def test_what_the_documentation_says_is_not_caught_is_not():
    """The list in `ambient` and docs/determinism.md; whoever closes one of these takes it off."""
    now, clock = dt.datetime.now, time.time
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with forbid_ambient():
            assert next(iter(clock, None)) > 0
            assert pool.submit(now).result().year > 2000
            assert pool.submit(clock).result()
            assert dt.datetime.fromtimestamp(86400, dt.UTC).astimezone().year == 1970
            assert id(now)
            assert hash("text")
            assert next(iter(OPEN))
