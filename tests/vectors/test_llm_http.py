"""LLM HTTP vectors: which requests share a key, which answer each one gets, how streams end."""

import json
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.http_exchange import (
    Answer,
    Body,
    End,
    Exchange,
    body_of,
    envelope_of,
    exchange_of,
    open_headers,
    parse_envelope,
    parse_exchange,
)
from bernstein_formats.http_key import HttpRequest, keyed, open_query
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_replay import LaneReplay, NoAnswer
from bernstein_formats.sse_end import StreamEnd

DATA = Path(__file__).parent / "data"
VECTORS = DATA / "llm-http"
FIELD = DATA / "field"
ENDS = {
    "complete": End.COMPLETE,
    "abort": End.ABORTED,
    "client_gone": End.CLIENT_GONE,
    "client_gone_before_headers": End.CLIENT_GONE,
    "status 529": End.COMPLETE,
}
# Streams that the protocol itself ended, and why the model stopped.
FINISHED = {
    "sse-anthropic-whole": "end_turn",
    "sse-anthropic-split-utf8": "end_turn",
    "sse-anthropic-error-event": "",
    "sse-anthropic-pings": "end_turn",
    "sse-anthropic-tool": "tool_use",
    "sse-chat-whole": "stop",
    "sse-chat-error": "",
    "sse-responses-whole": "completed",
    "sse-gemini-whole": "STOP",
}
PROTOCOLS = {
    "anthropic.messages": Protocol.ANTHROPIC_MESSAGES,
    "openai.chat": Protocol.OPENAI_CHAT,
    "openai.responses": Protocol.OPENAI_RESPONSES,
    "gemini.streamGenerateContent": Protocol.GEMINI_GENERATE,
}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


def by_id(name: str) -> Any:
    return pytest.mark.parametrize("case", lines(name), ids=lambda case: case["id"])


def request_of(side: dict[str, Any]) -> HttpRequest:
    return HttpRequest(
        side["method"],
        side["path"],
        tuple((name, value) for name, value in side["query"]),
        tuple(side["headers"].items()),
        json.dumps(side["body"]).encode(),
    )


@by_id("key-pairs.jsonl")
def test_two_requests_share_a_key_exactly_when_they_may_share_an_answer(
    case: dict[str, Any],
) -> None:
    a, b = keyed(request_of(case["a"])), keyed(request_of(case["b"]))

    assert ("same" if a.key == b.key else "different") == case["expect"], case["why"]


@by_id("key-pairs.jsonl")
def test_the_key_does_not_depend_on_how_the_json_is_written(case: dict[str, Any]) -> None:
    request = request_of(case["a"])
    spread = json.dumps(dict(reversed(case["a"]["body"].items())), indent=3, ensure_ascii=False)
    other = HttpRequest(
        request.method, request.path, request.query, request.headers, spread.encode()
    )

    assert keyed(other).key == keyed(request).key


def exchange(lane: str, seq: int, key: str, end: End = End.COMPLETE) -> Exchange:
    answer = Answer(200, body_of(b""), end, None, "")
    digest = sha256(key.encode()).hexdigest()
    return Exchange(
        *(lane, seq, "POST", "/openai/v1/responses", body_of(b""), Body(digest, 0)),
        *(Protocol.OPENAI_RESPONSES.value, "m", digest),
        rules={},
        answer=answer,
    )


@by_id("queue-scenarios.jsonl")
def test_each_request_gets_the_exchange_that_is_its_turn(case: dict[str, Any]) -> None:
    by_completion = sorted(case["recorded"], key=lambda each: each["completed"])
    recorded = [
        exchange(each["lane"], each["seq"], each["key"], ENDS[each["end"]])
        for each in by_completion
    ]
    lanes = {lane: LaneReplay(lane, recorded) for lane in "AB"}

    for asked in case["replay"]:
        key = sha256(asked["key"].encode()).hexdigest()
        found = lanes[asked["lane"]].take(key)
        got = f"miss:{found.kind}" if isinstance(found, NoAnswer) else str(found.seq)
        assert got == str(asked["expect"]).partition(",")[0]
        if "silence" in str(asked["expect"]):
            assert isinstance(found, Exchange)
            assert found.answer.end is End.CLIENT_GONE
    left = sum(len(lane.account().unused) for lane in lanes.values())
    served = sum(lane.account().served for lane in lanes.values())
    assert left == len(recorded) - served


@by_id("responses.jsonl")
@pytest.mark.parametrize("piece", [None, 1], ids=["as-recorded", "byte-by-byte"])
def test_a_stream_is_finished_only_where_its_protocol_says_so(
    case: dict[str, Any], piece: int | None
) -> None:
    chunks = [b64decode(each) for each in case["chunks_b64"]]
    whole = b"".join(chunks)
    if piece:
        chunks = [whole[at : at + piece] for at in range(0, len(whole), piece)]
    stream = StreamEnd(PROTOCOLS[case["protocol"]])
    for chunk in chunks:
        stream.feed(chunk)

    if case["id"] in FINISHED:
        assert (stream.is_finished, stream.stop_reason) == (True, FINISHED[case["id"]])
    else:
        assert not stream.is_finished or case["id"] == "sse-gemini-comment"


@by_id("responses.jsonl")
def test_a_recorded_answer_is_read_back_as_it_was(case: dict[str, Any]) -> None:
    chunks = [b64decode(each) for each in case["chunks_b64"]]
    headers = tuple((name, value) for name, value in case["headers"])
    answer = Answer(case["status"], body_of(b"".join(chunks)), ENDS[case["end"]], None, "")
    sizes = tuple((len(chunk), at * 0.5) for at, chunk in enumerate(chunks))
    request = HttpRequest("POST", "/openai/v1/responses", (), (), b'{"model":"m"}')
    envelope = envelope_of(request, headers, sizes)
    kept = exchange_of("a", 1, request, keyed(request), answer=answer, envelope=envelope)

    assert parse_exchange(kept.line(), 1) == kept
    assert parse_envelope(envelope.data(), kept) == envelope
    assert (envelope.response_headers, envelope.chunks) == (headers, sizes)


SHAPES = json.loads((VECTORS / "request-shapes.json").read_text())
SAMPLES = [(client, sample) for client, shape in SHAPES.items() for sample in shape["samples"]]
SPOKEN = {
    "claude": Protocol.ANTHROPIC_MESSAGES,
    "codex": Protocol.OPENAI_RESPONSES,
    "gemini": Protocol.GEMINI_GENERATE,
    "qwen": Protocol.OPENAI_CHAT,
    "opencode": Protocol.OPENAI_CHAT,
    "aider": Protocol.OPENAI_CHAT,
}


@pytest.mark.parametrize(
    ("client", "sample"), SAMPLES, ids=[f"{name}-{at}" for at, (name, _) in enumerate(SAMPLES)]
)
def test_what_a_real_client_sends_has_a_key_and_none_of_its_secrets_is_kept(
    client: str, sample: dict[str, Any]
) -> None:
    path, _, query = sample["path"].partition("?")
    pairs = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in query.split("&"))
    headers = tuple((name, value) for name, value in sample["headers"])
    request = HttpRequest(
        sample["method"], path, pairs, headers, json.dumps(sample["body"]).encode()
    )
    found = keyed(request)
    kept = open_headers(headers)

    assert request.protocol is SPOKEN[client]
    assert found.canonical["body"] != {}
    assert "dummy" not in str(kept)
    assert {name.lower() for name, _ in kept} & {"authorization", "x-api-key"} == set()


def test_a_character_that_is_cut_in_two_arrives_whole() -> None:
    case = json.loads((FIELD / "F05" / "chunks.json").read_text())
    data = b"".join(map(b64decode, case["chunks_base64"]))

    assert sha256(data).hexdigest() == case["expected_bytes_sha256"]
    assert body_of(data).sha256_hex == case["expected_bytes_sha256"]


@pytest.mark.parametrize(
    ("name", "finished", "reason"),
    [
        ("complete", True, "stop"),
        ("cut_after_first_delta", False, ""),
        ("cut_inside_a_frame", False, ""),
        ("finish_but_no_done", False, "stop"),
        ("length_stop", True, "length"),
    ],
)
def test_only_a_stream_that_showed_its_end_is_whole(name: str, finished: bool, reason: str) -> None:
    frames = json.loads((FIELD / "F06" / "streams.json").read_text())[name]
    stream = StreamEnd(Protocol.OPENAI_CHAT)
    for frame in frames:
        stream.feed(frame.encode())
    answer = Answer(200, body_of(b""), End.COMPLETE, stream.is_finished, reason)

    assert (stream.is_finished, stream.stop_reason) == (finished, reason)
    assert answer.is_whole is finished


def test_no_secret_of_headers_or_address_is_written_down() -> None:
    case = json.loads((FIELD / "F24" / "call.json").read_text())
    secrets = json.loads((FIELD / "F24" / "expected.json").read_text())["strings"]
    asked, answered = case["request"], case["response"]
    request = HttpRequest(
        "POST",
        "/openai/v1/chat/completions",
        (("api_key", "sk-test-url-0001"), ("beta", "true")),
        tuple(asked["headers"].items()),
        json.dumps(asked["body"]).encode(),
    )
    answer = Answer(200, body_of(b""), End.COMPLETE, None, "")
    envelope = envelope_of(request, tuple(answered["headers"].items()), ())
    kept = exchange_of("a", 1, request, keyed(request), answer=answer, envelope=envelope)
    written = (kept.line() + envelope.data()).decode()

    assert [secret for secret in secrets if secret in written] == []
    assert open_query(request.query) == (("beta", "true"),)
