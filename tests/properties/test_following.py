"""However writes, cuts, losses and restarts fall together: no wrong byte is shipped, none lost."""

import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.direct_project import DirectProject

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, DiskFull, StoreFailed
from bernstein_formats.event_journal import START, next_row
from bernstein_formats.session_journal import StepHead, next_step, parse_step
from bernstein_importer.following import REST_SECONDS, ROUND_SECONDS, Following
from bernstein_importer.importer import Importer
from bernstein_importer.outcome import Status
from bernstein_importer.source import Source
from bernstein_runtime.clock import FixedClock

ROWS = 12
AGENT = "agent-1"


def journal_lines() -> list[bytes]:
    lines, head = [], START
    for number in range(ROWS):
        event = "run_completed" if number == ROWS - 1 else "x"
        line, head = next_row(head, event, b'{"n": %d}' % number, 1.0, 0.0)
        lines.append(line + b"\n")
    return lines


def step_lines() -> list[bytes]:
    step = parse_step(b'{"input_hash": "%b"}' % (b"0" * 64))
    lines, head = [], StepHead()
    for _ in range(ROWS):
        line, head = next_step(head, step, 1.0)
        lines.append(line + b"\n")
    return lines


WHOLE = {
    paths.journal_path("r1"): b"".join(journal_lines()),
    paths.llm_calls_path("r1"): b"".join(b'{"call": %d}\n' % number for number in range(ROWS)),
    paths.steps_path(AGENT): b"".join(step_lines()),
}
WRITES = st.tuples(st.just("write"), st.sampled_from(sorted(WHOLE)), st.integers(1, 700))
TEARS = st.tuples(st.just("tear"), st.sampled_from(sorted(WHOLE)), st.integers(1, 3))
OTHERS = st.sampled_from(
    [
        ("look", "", 1),
        ("look", "", 3),
        ("rest", "", 1),
        ("follower restarts", "", 0),
        ("services restart", "", 0),
        ("call fails", "", 0),
        ("answer is lost", "", 0),
        ("file is replaced by its copy", paths.journal_path("r1"), 0),
    ]
)


class World:
    """A peer that writes, a follower, a store."""

    def __init__(self, top: Path) -> None:
        self.peer = top / "peer"
        (self.peer / "runs" / "r1").mkdir(parents=True)
        self.project = DirectProject(top / "ours")
        self.clock = FixedClock(now=0.0)
        self.written = dict.fromkeys(WHOLE, 0)
        self.failed: set[str] = set()
        self.follow()

    def follow(self) -> None:
        importer = Importer(Source(self.peer.resolve()), self.project)
        self.following = Following(importer, threading.Event(), self.clock, lambda _: None)

    def look(self, times: int = 1, seconds: float = 0.5) -> None:
        for _ in range(times):
            self.clock.monotonic += seconds
            for outcome in self.following.look_once():
                if outcome.status is Status.FAILED:
                    self.failed.add(outcome.reason)

    def do(self, what: str, name: str, count: int) -> None:
        actions: dict[str, Callable[[], None]] = {
            "write": lambda: self.write(name, count),
            "tear": lambda: self.tear(name, count),
            "look": lambda: self.look(count),
            "rest": lambda: self.look(3, REST_SECONDS),
            "follower restarts": self.follow,
            "services restart": self.project.restart,
            "call fails": lambda: self.look_while(DiskFull("no room"), answer=False),
            "answer is lost": lambda: self.look_while(StoreFailed("who knows"), answer=True),
            "file is replaced by its copy": lambda: self.replace(name),
        }
        actions[what]()

    def look_while(self, error: BernsteinError, *, answer: bool) -> None:
        with self.project.losing(error, answer=answer):
            self.look()

    def write(self, name: str, count: int) -> None:
        """The next bytes, wherever they end."""
        path = self.peer / name
        path.parent.mkdir(parents=True, exist_ok=True)
        start = self.written[name]
        with path.open("ab") as file:
            file.write(WHOLE[name][start : start + count])
        self.written[name] = min(start + count, len(WHOLE[name]))

    def tear(self, name: str, count: int) -> None:
        """A crash: a part of a line, perhaps with rubbish and a line end, that a repair removes."""
        path = self.peer / name
        if not path.exists():
            return
        good = path.read_bytes()
        self.look()
        ends = b"\n" if count == 2 and "calls" not in name else b""
        with path.open("ab") as file:
            file.write(b"\0half" * count + ends)
        self.look(count)
        path.write_bytes(good)

    def replace(self, name: str) -> None:
        path = self.peer / name
        if path.exists():
            shutil.copy(path, path.with_name("copy"))
            path.with_name("copy").replace(path)

    def check(self) -> None:
        for name, whole in WHOLE.items():
            assert whole.startswith(self.project.stored(name)), name


@settings(max_examples=60, deadline=None)
@given(st.lists(WRITES | WRITES | TEARS | OTHERS, max_size=25))
def test_no_wrong_byte_is_shipped_and_all_are_there_in_the_end(
    actions: list[tuple[str, str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as top:
        world = World(Path(top))
        for action in actions:
            world.do(*action)
            world.check()
        for name, whole in WHOLE.items():
            world.write(name, len(whole))
        world.look(int(ROUND_SECONDS / 0.5) * 2)
        world.look(60, REST_SECONDS)

        assert world.failed <= {"DISK_FULL", "STORE_FAILED"}
        for name, whole in WHOLE.items():
            assert world.project.stored(name) == whole, name
        assert world.project.stored(paths.seal_path("r1"))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(WHOLE)),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    st.booleans(),
)
def test_a_changed_byte_of_what_was_shipped_is_found_and_nothing_more_is_taken(
    name: str, part: float, at: float, restarts: bool
) -> None:
    with tempfile.TemporaryDirectory() as top:
        world = World(Path(top))
        world.write(paths.journal_path("r1"), 1)
        half = WHOLE[name][: max(1, int(len(WHOLE[name]) * part))]
        world.write(name, len(half) - world.written[name])
        world.look(3)
        taken = world.project.stored(name)
        if not taken:
            return
        position = int(len(taken) * at)
        path = world.peer / name
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
        if restarts:
            world.follow()
        world.write(name, 1000)
        world.look(int(ROUND_SECONDS / 0.5) * 2)
        world.look(60, REST_SECONDS)

        assert world.project.stored(name).startswith(taken)
        assert world.failed & {"FOREIGN_WRITER", "RUN_EXISTS"}, json.dumps(sorted(world.failed))
