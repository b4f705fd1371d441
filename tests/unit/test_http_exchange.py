"""Rows of exchanges, replay lanes and misses, as values."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bernstein_formats.errors import ReplayKeySchemeMismatchError, RowMalformed
from bernstein_formats.http_exchange import (
    Answer,
    End,
    Envelope,
    Exchange,
    body_of,
    exchange_of,
    open_headers,
    parse_envelope,
    parse_exchange,
)
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_miss import differences, error_body, miss_text, nearest
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_replay import LaneReplay, MissKind, NoAnswer, ReleaseOrder

ENVELOPE = Envelope((("a", "b"),), (("x", "y"),), (), ((1, 0.5), (1, 1.0)))


def exchange(body: Any, seq: int = 1) -> Exchange:
    request = HttpRequest("POST", "/openai/v1/responses", (), (), json.dumps(body).encode())
    answer = Answer(200, body_of(b"ab"), End.COMPLETE, True, "stop")
    return exchange_of("agent", seq, request, keyed(request), answer=answer, envelope=ENVELOPE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("v", 2),
        ("seq", -1),
        ("seq", True),
        ("status", "200"),
        ("key", "xyz"),
        ("end", "somehow"),
        ("finished", "yes"),
        ("rules", []),
        ("rules", {"a": -1}),
        ("envelope_bytes", "2"),
        ("lane", None),
    ],
)
def test_a_row_that_says_something_impossible_is_refused_by_line(name: str, value: Any) -> None:
    row = json.loads(exchange({}).line())
    missing = {key: kept for key, kept in row.items() if key != name}

    with pytest.raises(RowMalformed, match="line 7"):
        parse_exchange(json.dumps(row | {name: value}).encode(), 7)
    with pytest.raises(RowMalformed, match="line 7"):
        parse_exchange(json.dumps(missing).encode(), 7)


def test_an_envelope_is_read_back_as_it_was() -> None:
    assert parse_envelope(ENVELOPE.data(), exchange({})) == ENVELOPE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunks", [[1, 0.5]]),
        ("chunks", [[2, -1]]),
        ("chunks", None),
        ("query", [["a"]]),
        ("request_headers", {}),
    ],
)
def test_an_envelope_that_says_something_impossible_is_refused(name: str, value: Any) -> None:
    members = json.loads(ENVELOPE.data())
    del members[name]

    with pytest.raises(RowMalformed, match="request 1: its envelope"):
        parse_envelope(json.dumps(members).encode(), exchange({}))
    with pytest.raises(RowMalformed, match="request 1: its envelope"):
        parse_envelope(json.dumps(members | {name: value}).encode(), exchange({}))


@pytest.mark.parametrize("line", [b"", b"[]", b"nul", b"\xff", b'{"v":1,"v":1}', b"[" * 100_000])
def test_what_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(RowMalformed):
        parse_exchange(line, 1)


def test_the_journal_row_has_nothing_that_a_replay_cannot_repeat() -> None:
    ((_, event),) = exchange({}).events()

    assert {"chunks", "request_headers", "response_headers", "query"} & event.keys() == set()
    assert event["response_sha256"] == body_of(b"ab").sha256_hex


def test_secrets_are_told_by_name_in_any_case_and_limits_are_no_secrets() -> None:
    kept = open_headers(
        (
            *(("X-API-KEY", "s"), ("set-COOKIE2", "s"), ("X-Amz-Security-Token", "s")),
            *(("Anthropic-Organization-Id", "s"), ("anthropic-ratelimit-tokens-limit", "9")),
            *(("Transfer-Encoding", "chunked"), ("x-request-id", "r")),
        )
    )

    assert kept == (("anthropic-ratelimit-tokens-limit", "9"), ("x-request-id", "r"))


def test_another_rule_set_is_refused_and_not_a_pile_of_misses() -> None:
    with pytest.raises(ReplayKeySchemeMismatchError, match="rule set 2"):
        LaneReplay("agent", [replace(exchange({}), rule_set=2)])


def test_a_cut_answer_is_no_whole_hit() -> None:
    cut = exchange({})
    cut = replace(cut, answer=replace(cut.answer, end=End.ABORTED))
    lane = LaneReplay("agent", [cut])
    lane.take(cut.key)

    assert (lane.account().served, lane.account().cut) == (1, 1)


def test_the_nearest_request_is_the_one_with_the_fewest_differences() -> None:
    bodies = [{"model": "m", "input": "a", "seed": 1}, {"model": "m", "input": "b", "seed": 2}]
    recorded = [(exchange(body, seq), asked(body)) for seq, body in enumerate(bodies, 1)]
    wanted = asked({"model": "m", "input": "b", "seed": 3})
    near = nearest(wanted, recorded)
    assert near is not None
    text = miss_text(NoAnswer(MissKind.NOT_RECORDED), wanted, "openai.responses", "agent", near)

    assert (near.exchange.seq, near.count) == (2, 1)
    assert text.startswith(
        "REPLAY_MISS: no recorded response for this openai.responses request"
        f" (key {wanted.key[:16]}"
    )
    assert "$.body.json.seed (recorded 2, asked 3)" in text


def asked(body: Any) -> Any:
    data = json.dumps(body).encode()
    return keyed(HttpRequest("POST", "/openai/v1/responses", (), (), data))


@pytest.mark.parametrize(
    ("recorded", "now", "place"),
    [
        ({"a": 1}, {"a": 1.0}, "$.a"),
        ({"a": 1}, {"a": True}, "$.a"),
        ({"a": [1, 2]}, {"a": [1]}, "$.a[1]"),
        ({"a": {}}, {"a": {"b": None}}, "$.a.b"),
        ({"a": "x" * 50 + "y"}, {"a": "x" * 50 + "z"}, "$.a from character 30"),
    ],
)
def test_differences_name_their_place(recorded: Any, now: Any, place: str) -> None:
    assert [each.place for each in differences(recorded, now)] == [place]


@pytest.mark.parametrize("protocol", Protocol)
def test_every_protocols_error_is_json_that_shows_the_text(protocol: Protocol) -> None:
    body = json.loads(error_body(protocol, "half a pair: \ud800", "k"))

    assert body["error"]["message"] == "half a pair: \\ud800"


def test_answers_have_their_turn_in_the_order_of_their_ends() -> None:
    first, second, third = (exchange({"n": seq}, seq) for seq in (1, 2, 3))
    order = ReleaseOrder("agent", [third, first, second])

    assert [order.has_turn(each) for each in (first, second, third)] == [False, False, True]
    order.give_out(second)  # out of its turn
    order.give_out(third)
    assert order.has_turn(first)
