"""Messages of tool servers: what belongs together, what is noise, what waits for what."""

import itertools
import json
from typing import Any

import pytest

from bernstein_formats.http_exchange import Answer, End, Exchange, body_of, envelope_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.mcp_message import Kind, Readdressed, answer_to_ping, message_of
from bernstein_formats.mcp_order import Order
from bernstein_formats.mcp_transcript import STDIO, UNASKED, Asked, Transcript


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def call(request_id: Any, tool: str = "add", **params: Any) -> bytes:
    return line(id=request_id, method="tools/call", params={"name": tool, **params})


def answer(request_id: Any, text: str = "done") -> bytes:
    return line(id=request_id, result={"text": text})


NOTE = line(method="notifications/message", params={"data": "hello"})


def transcript() -> Transcript:
    numbers, seconds = itertools.count(1), itertools.count(0)
    return Transcript(lambda: next(numbers), lambda: next(seconds) / 1000)


# --- transcript -----------------------------------------------------------------------------------


def test_what_a_server_says_until_its_answer_belongs_to_the_request() -> None:
    taken = transcript()
    assert taken.asked(call(1)) is None
    assert taken.said(NOTE) is None
    over = taken.said(answer(1))

    assert over is not None
    assert (over.seq, over.method, over.request) == (1, STDIO, call(1))
    assert over.pieces == [NOTE, answer(1)]
    assert over.chunks == ((len(NOTE), 1.0), (len(answer(1)), 2.0))


def test_progress_goes_to_the_request_that_it_names_and_the_rest_to_the_newest() -> None:
    progress = line(method="notifications/progress", params={"progressToken": "t", "progress": 1})
    taken = transcript()
    taken.asked(call(1, _meta={"progressToken": "t"}))
    taken.asked(call(2))
    taken.said(progress)
    taken.said(NOTE)
    second, first = taken.said(answer(2)), taken.said(answer(1))

    assert first is not None
    assert second is not None
    assert first.pieces == [progress, answer(1)]
    assert second.pieces == [NOTE, answer(2)]


def test_what_is_said_while_nobody_asks_is_an_exchange_of_its_own() -> None:
    taken = transcript()
    initialized = taken.asked(line(method="notifications/initialized"))
    unasked = taken.said(NOTE)

    assert initialized is not None
    assert unasked is not None
    assert (initialized.pieces, initialized.method) == ([], STDIO)
    assert (unasked.seq, unasked.method, unasked.request) == (2, UNASKED, b"")
    assert unasked.pieces == [NOTE]


def test_pings_leave_no_trace_and_the_unanswered_end_with_their_side() -> None:
    taken = transcript()
    assert taken.asked(line(id=7, method="ping")) is None
    assert taken.said(line(id=7, result={})) is None
    taken.asked(call(8))
    (left,) = taken.ended(End.ABORTED)

    assert (left.seq, left.end, left.pieces) == (1, End.ABORTED, [])
    assert list(taken.ended(End.ABORTED)) == []


def test_lines_that_are_no_messages_are_kept_like_any_other() -> None:
    taken = transcript()
    odd = taken.asked(b"hello\n")
    said = taken.said(b"starting up\n")

    assert odd is not None
    assert said is not None
    assert said.method == UNASKED


# --- keys -----------------------------------------------------------------------------------------


def key(body: bytes) -> str:
    return keyed(HttpRequest(STDIO, "/mcp/workshop", (), (), body)).key


@pytest.mark.parametrize(
    "other",
    [
        call(2, a=1, _meta={"progressToken": 5}),
        call("x", a=1, _meta={"progressToken": "t"}),
        call(1, a=1, _meta={"traceparent": "00-1-2-3", "progressToken": 5}),
    ],
)
def test_ids_tokens_and_trace_context_are_noise(other: bytes) -> None:
    assert key(other) == key(call(1, a=1, _meta={"progressToken": 1}))


@pytest.mark.parametrize(
    "other",
    [
        call(1, a=2),
        call(1, a=1.0),
        call(1, "sub", a=1),
        call(1, a=1, _meta={"other": 1}),
        line(id=1, method="tools/list", params={"name": "add", "a": 1}),
        line(method="tools/call", params={"name": "add", "a": 1, "id": 1}),
    ],
)
def test_everything_else_is_part_of_the_key(other: bytes) -> None:
    assert key(other) != key(call(1, a=1))


def test_an_answer_of_the_client_is_tied_to_the_servers_question() -> None:
    assert key(answer(1)) != key(answer(2))
    assert key(answer(1)) != key(answer(1, "other"))


def test_a_cancelled_request_is_told_by_its_place_and_not_by_its_id() -> None:
    cancelled = [
        line(method="notifications/cancelled", params={"requestId": number}) for number in (1, 2)
    ]
    assert key(cancelled[0]) == key(cancelled[1])
    others = [line(method="notifications/other", params={"requestId": n}) for n in (1, 2)]
    assert key(others[0]) != key(others[1])


def test_what_was_asked_stands_beside_the_key() -> None:
    found = keyed(HttpRequest(STDIO, "/mcp/workshop", (), (), call(1)))
    assert found.model == "tools/call add"
    assert found.rules == {"mcp.drop-request-id": 1}


# --- answers --------------------------------------------------------------------------------------


def test_an_answer_gets_the_askers_id_and_is_left_alone_where_it_is_the_same() -> None:
    recorded, asked = message_of(call(1)), message_of(call("a7"))
    assert recorded is not None
    assert asked is not None
    other = Readdressed(recorded, asked)
    odd = b'{"id": 1,  "result": {"text":"\xc3\xbc"}, "jsonrpc": "2.0"}\r\n'

    assert json.loads(other.line(odd)) == {"id": "a7", "result": {"text": "ü"}, "jsonrpc": "2.0"}
    assert other.line(odd).endswith(b"}\r\n")
    assert Readdressed(recorded, recorded).line(odd) == odd
    assert other.line(NOTE) == NOTE
    assert other.line(answer(9)) == answer(9)
    assert answer_to_ping(asked) == b'{"jsonrpc": "2.0", "id": "a7", "result": {}}'


def test_progress_gets_the_askers_token() -> None:
    recorded = message_of(call(1, _meta={"progressToken": 1}))
    asked = message_of(call(2, _meta={"progressToken": 2}))
    assert recorded is not None
    assert asked is not None
    progress = line(method="notifications/progress", params={"progressToken": 1, "progress": 5})
    told = json.loads(Readdressed(recorded, asked).line(progress))

    assert told["params"] == {"progressToken": 2, "progress": 5}


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{}", b'{"id": 1, "id": 2}', b"\xff"])
def test_what_is_no_message_is_none(data: bytes) -> None:
    assert message_of(data) is None


def test_kinds_are_told_apart() -> None:
    lines = (call(1), line(method="notifications/initialized"), answer(1), line(id=1, error={}))
    kinds = [message.kind for each in lines if (message := message_of(each))]
    assert kinds == [Kind.REQUEST, Kind.NOTIFICATION, Kind.ANSWER, Kind.ANSWER]


# --- order ----------------------------------------------------------------------------------------


def exchange(seq: int, body: bytes, method: str = STDIO) -> Exchange:
    request = HttpRequest(method, "/mcp/workshop", (), (), body)
    nothing = Answer(0, body_of(b""), End.COMPLETE, None, "")
    envelope = envelope_of(request, (), ())
    return exchange_of("agent", seq, request, keyed(request), answer=nothing, envelope=envelope)


def test_the_unasked_is_due_when_all_before_it_was_asked_for() -> None:
    first, unasked, second = exchange(1, call(1)), exchange(3, b"", UNASKED), exchange(2, call(2))
    order = Order([first, second, unasked], "agent", "/mcp/workshop")

    assert order.has_unasked
    assert order.next_due() is None
    order.taken(second)
    assert order.next_due() is None
    order.taken(first)
    assert order.next_due() is unasked
    assert order.next_due() is None


def test_an_exchange_waits_for_the_client_only_if_it_did_when_recorded() -> None:
    asking, reply, later = exchange(1, call(1)), exchange(2, answer(5)), exchange(3, answer(6))
    waiting = Order([reply, asking, later], "agent", "/mcp/workshop")
    hasty = Order([asking, reply, later], "agent", "/mcp/workshop")

    assert waiting.waits_for_client(asking)
    assert not hasty.waits_for_client(asking)
    assert not Order([], "other", "/mcp/workshop").has_unasked


def test_a_said_exchange_counts_from_its_request() -> None:
    said = Asked(1, 10.0)
    said.add(b"ab", 10.5)
    assert said.chunks == ((2, 500.0),)
