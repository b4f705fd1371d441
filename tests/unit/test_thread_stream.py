"""A follower over HTTP: rows once and in order, whatever the connection does."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from bernstein_client.thread_stream import TRIES, ThreadStream
from bernstein_formats.errors import InvalidInput, RunNotFound, Unavailable
from bernstein_formats.thread import project

JOURNAL = Path(__file__).parents[1] / "vectors/data/llm/065-thread-sse/journal.jsonl"
STEPS = list(project([JOURNAL.read_bytes()]))
END = b"event: end\ndata: {}\n\n"


def frames(*indices: int) -> bytes:
    return b"".join(STEPS[index].frame() for index in indices)


def stream(*answers: Callable[[], httpx2.Response]) -> tuple[ThreadStream, list[str | None]]:
    """A gateway that gives these answers in turn, and the resume points that it was asked for."""
    asked: list[str | None] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("last-event-id"))
        return answers[min(len(asked), len(answers)) - 1]()

    return ThreadStream(Path("none"), httpx2.MockTransport(handle)), asked


def ok(content: bytes) -> Callable[[], httpx2.Response]:
    return lambda: httpx2.Response(200, content=content)


def lost() -> httpx2.Response:
    raise httpx2.ReadError("the network is gone")


def test_a_thread_is_read_to_its_end() -> None:
    source, asked = stream(ok(frames(*range(8)) + END))

    assert list(source.steps("r")) == STEPS
    assert asked == [None]


def test_a_lost_connection_is_taken_up_after_the_last_row() -> None:
    source, asked = stream(ok(frames(0, 1, 2)), lost, ok(frames(2, 3, 4, 5, 6, 7) + END))

    assert list(source.steps("r")) == STEPS
    assert asked == [None, "2", "2"]


def test_missing_rows_are_asked_for_again() -> None:
    source, asked = stream(ok(frames(0, 1, 5)), ok(frames(2, 3, 4, 5, 6, 7) + END))

    assert list(source.steps("r")) == STEPS
    assert asked == [None, "1"]


def test_a_start_in_the_middle_asks_for_the_rows_behind_it() -> None:
    source, asked = stream(ok(frames(5, 6, 7) + END))

    assert list(source.steps("r", 5)) == STEPS[5:]
    assert asked == ["4"]


def test_no_content_means_that_there_is_nothing_more() -> None:
    source, _ = stream(lambda: httpx2.Response(204))

    assert list(source.steps("r", 8)) == []


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "RUN_NOT_FOUND", RunNotFound),
        (400, "INVALID_INPUT", InvalidInput),
        (503, "TOO_MANY_STREAMS", Unavailable),
    ],
)
def test_a_refusal_is_the_error_that_it_was(status: int, reason: str, kind: type) -> None:
    body = {"error": reason, "detail": "because"}
    source, _ = stream(lambda: httpx2.Response(status, json=body))

    with pytest.raises(kind, match="because"):
        list(source.steps("r"))


def test_a_refusal_in_the_middle_ends_it() -> None:
    refused = b'event: refused\ndata: {"error": "ROW_MALFORMED", "detail": "row 1"}\n\n'
    source, _ = stream(ok(frames(0) + refused))

    with pytest.raises(Unavailable, match="row 1"):
        list(source.steps("r"))


def test_a_thread_that_never_goes_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    source, asked = stream(lost)

    with pytest.raises(Unavailable, match="broke off"):
        list(source.steps("r"))

    assert len(asked) == TRIES
