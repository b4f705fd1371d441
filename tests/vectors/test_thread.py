"""The live thread against the golden files: frames, verdicts, and a client that loses nothing."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.errors import InvalidInput, LimitExceeded, RowMalformed
from bernstein_formats.event_stream import (
    FRAME_BYTES_MAX,
    EventParser,
    Gap,
    ServerEvent,
    Step,
    ThreadCursor,
)
from bernstein_formats.thread import project, step_at, verify_thread

DATA = Path(__file__).parent / "data"
JOURNALS = DATA / "event-journal"
CASES = [
    path.parent.name
    for path in sorted(JOURNALS.glob("*/case.json"))
    if json.loads(path.read_bytes())["kind"] == "journal"
]
# The peer raises, or says "ok" of rows whose stored copies are wrong: position that ours names.
STRICTER = {
    "082-no-final-newline": 3,
    "102-tamper-payload-hash": 3,
    "103-tamper-payload-hash-missing": 3,
    "104-tamper-index-gap": 3,
    "105-tamper-index-dup": 3,
    "106-tamper-index-missing": 3,
    "107-tamper-index-text": 3,
    "108-tamper-index-null": 3,
    "109-tamper-index-float": 3,
    "122-dup-json-key-hidden": 3,
    "124-dup-event-key": 3,
    "125-genesis-prev-missing": 0,
    "128-event-type-confusion": 0,
    "133-hostile-nan-jcs": 1,
    "134-hostile-surrogate-jcs": 1,
    "135-hostile-bigint": 1,
    "136-hostile-nesting": None,
    "137-hostile-index-infinity": 3,
}
# What the peer cannot project at all.
CRASHES = {"135-hostile-bigint": 4, "136-hostile-nesting": 5, "137-hostile-index-infinity": 4}


def journal(name: str) -> list[bytes]:
    path = JOURNALS / name / "journal.jsonl"
    return [path.read_bytes()] if path.exists() else []


def expected(name: str, section: str) -> Any:
    return json.loads((JOURNALS / name / "expected.json").read_bytes())[section]


@pytest.mark.parametrize("name", CASES)
def test_frames_are_the_peers_bytes(name: str) -> None:
    wanted = expected(name, "thread_frames")
    steps = list(project(journal(name)))
    if name in CRASHES:
        assert "raises" in wanted
        assert CRASHES[name] == len(steps)
        return

    frames = [step.frame() for step in steps]

    assert wanted["ids"] == [str(step.index) for step in steps]
    assert wanted["after_0"] == [str(step.index) for step in project(journal(name), 0)]
    assert wanted["sse_sha256"] == hashlib.sha256(b"".join(frames)).hexdigest()
    if wanted["first_frame"] is not None:
        assert wanted["first_frame"].encode() == frames[0]


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_on_a_thread_is_the_peers_or_stricter(name: str) -> None:
    wanted = expected(name, "thread_verify")
    verdict = verify_thread(journal(name))
    if name in STRICTER:
        assert (verdict.ok, verdict.divergent_index) == (False, STRICTER[name])
        return
    assert wanted == {
        "ok": verdict.ok,
        "count": verdict.count,
        "divergent_index": verdict.divergent_index,
        "errors": list(verdict.errors),
    }


@pytest.mark.parametrize("name", ["065-thread-sse", "066-thread-sse-jcs"])
def test_a_whole_thread_is_the_peers_stream(name: str) -> None:
    folder = DATA / "llm" / name
    content = [(folder / "journal.jsonl").read_bytes()]
    wanted = json.loads((folder / "expected.json").read_bytes())

    assert (folder / "expected.sse").read_bytes() == b"".join(
        step.frame() for step in project(content)
    )
    for after, ids in wanted["after"].items():
        assert ids == [str(step.index) for step in project(content, int(after))]
    assert wanted["verify"]["ok"] == verify_thread(content).ok
    lines = content[0].splitlines()
    assert [step_at(index, line) for index, line in enumerate(lines)] == list(project(content))


@pytest.mark.parametrize(
    "line", [b"[1]", b"{", b'{"index": 4}', b'{"index": "3"}', b'{"index": true}', b"{}"]
)
def test_a_row_that_is_not_where_it_says_is_refused_by_name(line: bytes) -> None:
    with pytest.raises(RowMalformed, match="position 3"):
        step_at(3, line)


# --- the client -------------------------------------------------------------------------------

STREAMS: dict[str, list[str]] = json.loads(
    (DATA / "llm" / "067-thread-client" / "streams.json").read_bytes()
)
DELIVERED = json.loads((DATA / "llm" / "067-thread-client" / "expected.json").read_bytes())
# Streams whose rows the peer's client gets right. Of the others one has a gap, three show its
# defects, and in five the rows are not named as the live thread names them.
RIGHT = {"plain", "overlap", "heartbeat"}


def fed(chunks: list[bytes], cursor: ThreadCursor) -> list[Step | Gap]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return [found for event in events if (found := cursor.take(event)) is not None]


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_rows_are_delivered_as_by_the_peers_client(name: str) -> None:
    cursor = ThreadCursor()

    steps = fed([chunk.encode() for chunk in STREAMS[name]], cursor)

    wanted = [
        (int(frame["id"]), frame["data"]) for each in DELIVERED[name]["delivered"] for frame in each
    ]
    assert wanted == [(step.index, step.data) for step in steps if isinstance(step, Step)]
    assert DELIVERED[name]["reconnect_headers"] == cursor.resume_headers()


@pytest.mark.parametrize("name", ["gap", "delta"])
def test_missing_rows_are_noticed_and_asked_for_again(name: str) -> None:
    cursor = ThreadCursor()

    first, gap, *_ = fed([chunk.encode() for chunk in STREAMS[name]], cursor)

    begin, following = (int(DELIVERED[name]["delivered"][at][0]["id"]) for at in (0, 1))
    assert (first, gap) == (Step(begin, {"a": 1}), Gap(begin + 1, following - 1, begin))
    assert cursor.resume_headers() == ({"Last-Event-ID": str(begin)})


@pytest.mark.parametrize("name", ["text-id", "negative"])
def test_a_step_without_a_position_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        fed([STREAMS[name][0].encode()], ThreadCursor())


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("no-space", [("x", "{}", "4"), ("x", "{}", "5")]),
        ("two-data-lines", [("x", '{"a":1}\n{"b":2}', "0")]),
        ("crlf", [("x", "{}", "0"), ("x", "{}", "1")]),
        ("split-chunk", [("x", '{"a":1}', "0")]),
        (
            "bad-data",
            [("x", "{oops", "0"), ("x", "", "1"), ("message", "", "2"), ("message", "{}", None)],
        ),
    ],
)
def test_frames_are_parsed_by_the_standard(
    name: str, events: list[tuple[str, str, str | None]]
) -> None:
    parser = EventParser()

    found = [event for chunk in STREAMS[name] for event in parser.feed(chunk.encode())]

    assert found == [ServerEvent(*each) for each in events]


def field(file: str) -> bytes:
    return (DATA / "field" / "F22" / file).read_bytes()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_f22_any_split_and_any_line_end_gives_the_same_rows(size: int, line_end: bytes) -> None:
    stream = field("stream.txt").replace(b"\n", line_end)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]

    steps = fed(chunks, ThreadCursor(-1))

    assert steps == [Step(index, {"journal_index": index}) for index in range(3)]


def test_f22_heartbeats_do_not_move_the_cursor_and_a_gap_is_asked_for_again() -> None:
    cursor = ThreadCursor()

    found = fed([field("hostile_stream.txt")], cursor)

    assert found == [Step(1, {"journal_index": 1}), Step(2, {"journal_index": 2}), Gap(3, 6, 2)]
    assert cursor.resume_headers() == {"Last-Event-ID": "2"}


def test_a_stream_without_an_end_of_an_event_is_given_up() -> None:
    parser = EventParser()
    chunk = b"data: " + b"x" * (FRAME_BYTES_MAX // 2)
    parser.feed(chunk)

    with pytest.raises(LimitExceeded):
        parser.feed(chunk)
