"""A viewer's stream: frames, heartbeats, ends and refusals, from rows that a test hands out."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from bernstein_client.values import Watched, WatchedRows, WatchPlace
from bernstein_formats.errors import InvalidInput, RunNotFound, TooManyStreams, Unavailable
from bernstein_formats.thread import project
from bernstein_gateway.stream import END, HEARTBEAT, Thread, Viewers, resume_index

JOURNAL = Path(__file__).parents[1] / "vectors/data/llm/065-thread-sse/journal.jsonl"
LINES = tuple(JOURNAL.read_bytes().splitlines())
FRAMES = [step.frame() for step in project([JOURNAL.read_bytes()])]


class Rows:
    """Hands out items; an error among them is raised, a number is a pause of so many seconds."""

    def __init__(self, *items: Watched | Exception | float) -> None:
        self._items = items
        self.asked: list[tuple[str, int]] = []

    async def watch_rows(self, run_id: str, start_index: int) -> AsyncGenerator[Watched, None]:
        self.asked.append((run_id, start_index))
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, float):
                await asyncio.sleep(item)
            else:
                yield item


def place(index: int, *, sealed: bool = False) -> WatchPlace:
    return WatchPlace("r", index, sealed)


def streamed(rows: Rows, start: int = 0, heartbeat_seconds: float = 60.0) -> list[bytes]:
    async def collect() -> list[bytes]:
        thread = await Thread.opened(rows, "r", start, heartbeat_seconds)
        return [frame async for frame in thread.frames()]

    return asyncio.run(collect())


def name_of(frame: bytes) -> str:
    return frame.split(b"event: ")[1].split(b"\n")[0].decode()


def test_rows_become_the_frames_of_the_specification() -> None:
    rows = Rows(place(0, sealed=True), WatchedRows(0, LINES[:3]), WatchedRows(3, LINES[3:]))

    frames = streamed(rows)

    assert rows.asked == [("r", 0)]
    assert b"".join(frames[1:-1]) == b"".join(FRAMES)
    assert frames[-1] == END


def test_nothing_but_a_row_has_an_id() -> None:
    frames = streamed(Rows(place(0), 0.05, WatchedRows(0, LINES[:1]), place(1)), 0, 0.01)

    assert HEARTBEAT in frames
    assert [b"id: " in frame for frame in frames] == [
        name_of(frame) == "thread.step" for frame in frames
    ]


def test_a_row_that_is_not_where_it_says_ends_the_stream_with_a_refusal() -> None:
    frames = streamed(Rows(place(0), WatchedRows(0, (LINES[0], LINES[2]))))

    refused = json.loads(frames[-1].split(b"data: ")[1])
    assert name_of(frames[-1]) == "refused"
    assert refused["error"] == "ROW_MALFORMED"
    assert "position 1" in refused["detail"]


def test_a_journal_that_goes_away_is_told_and_not_taken_for_an_end() -> None:
    frames = streamed(Rows(place(0), WatchedRows(0, LINES[:1]), Unavailable("gone")))

    assert name_of(frames[-1]) == "refused"
    assert END not in frames


def test_what_the_journal_refuses_is_refused_before_a_stream_begins() -> None:
    with pytest.raises(RunNotFound):
        streamed(Rows(RunNotFound("no run")))


@pytest.mark.parametrize(
    ("items", "is_over"),
    [
        ([place(8, sealed=True), place(8, sealed=True)], True),
        ([place(0, sealed=True), WatchedRows(0, LINES)], False),
        ([place(8)], False),
    ],
)
def test_a_viewer_who_has_all_of_a_sealed_run_is_known(
    items: Sequence[Watched], is_over: bool
) -> None:
    thread = asyncio.run(Thread.opened(Rows(*items), "r", 8, 60.0))

    assert thread.is_over == is_over


@pytest.mark.parametrize(("text", "start"), [(None, 0), ("", 0), ("0", 1), ("41", 42), (" 7 ", 8)])
def test_the_resume_point_is_the_row_after_the_last_one_seen(text: str | None, start: int) -> None:
    assert resume_index(text) == start


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "٣", "9" * 19, "1e3"])
def test_an_unknown_resume_point_is_answered_clearly(text: str) -> None:
    with pytest.raises(InvalidInput, match="position"):
        resume_index(text)


def test_viewers_are_bounded() -> None:
    viewers = Viewers(1)
    viewers.enter()

    with pytest.raises(TooManyStreams):
        viewers.enter()

    viewers.leave()
    viewers.enter()
