"""Keys of HTTP requests: rules are anchored to their places, and nothing else is taken away."""

import json
from typing import Any

import pytest

from bernstein_formats.http_key import HttpRequest, Keyed, keyed
from bernstein_formats.http_protocol import Protocol


def key_of(path: str, body: Any, *headers: tuple[str, str]) -> Keyed:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return keyed(HttpRequest("POST", path, (), headers, data))


def result(text: str, tool: str = "Agent") -> dict[str, Any]:
    call = {"type": "tool_use", "id": "t1", "name": tool, "input": {}}
    part = {"type": "text", "text": text}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": [part]}
    return {
        "messages": [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [answer]},
        ]
    }


MESSAGES = "/anthropic/v1/messages"
RESPONSES = "/openai/v1/responses"


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        (MESSAGES, Protocol.ANTHROPIC_MESSAGES),
        (f"{MESSAGES}/count_tokens", Protocol.ANTHROPIC_MESSAGES),
        ("/openai/v1/chat/completions", Protocol.OPENAI_CHAT),
        (RESPONSES, Protocol.OPENAI_RESPONSES),
        ("/gemini/models/g:generateContent", Protocol.GEMINI_GENERATE),
        ("/openai/v1/models", Protocol.OTHER),
    ],
)
def test_the_end_of_a_path_says_what_is_spoken(path: str, protocol: Protocol) -> None:
    assert HttpRequest("POST", path, (), (), b"").protocol is protocol


def test_agent_ids_are_renamed_in_results_of_agent_tools_only() -> None:
    one, two = "agentId: a1111111111111111", "agentId: a2222222222222222"

    assert key_of(MESSAGES, result(one)).key == key_of(MESSAGES, result(two)).key
    assert key_of(MESSAGES, result(one, "Bash")).key != key_of(MESSAGES, result(two, "Bash")).key


def test_a_text_that_looks_renamed_is_not_taken_for_a_renamed_one() -> None:
    minted = key_of(MESSAGES, result("agentId: a1111111111111111"))
    written = key_of(MESSAGES, result("agentId: <id0>"))

    assert minted.canonical["body"] == written.canonical["body"]
    assert minted.key != written.key


def test_a_mask_takes_the_duration_and_no_number_beside_it() -> None:
    usage = "<usage>tool_uses: {}\nduration_ms: {}</usage>"
    base = key_of(MESSAGES, result(usage.format(600, 600)))

    assert base.key == key_of(MESSAGES, result(usage.format(600, 7))).key
    assert base.key != key_of(MESSAGES, result(usage.format(7, 600))).key
    assert "tool_uses: 600" in str(base.canonical)


def test_results_of_calls_that_were_not_made_stay_where_they_are() -> None:
    def turn(*ids: str) -> dict[str, Any]:
        calls = [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]
        answers = [{"type": "tool_result", "tool_use_id": each, "content": each} for each in ids]
        return {
            "messages": [
                {"role": "assistant", "content": calls},
                {"role": "user", "content": answers},
            ]
        }

    assert key_of(MESSAGES, turn("t1", "t9")).key != key_of(MESSAGES, turn("t9", "t1")).key


@pytest.mark.parametrize(
    ("a", "b"),
    [(b'{"n":1}', b'{"n":1.0}'), (b'{"n":1,"n":2}', b'{"n":2}'), (b"\xff", b"\xfe"), (b"[]", b"")],
)
def test_what_can_be_read_in_two_ways_is_never_the_same(a: bytes, b: bytes) -> None:
    assert key_of(RESPONSES, a).key != key_of(RESPONSES, b).key


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"messages":[1,{"content":[[],null,{"type":"tool_result"}]},{"role":"user"}]}',
        b'{"input":[{"id":5},{"output":[]},"x"],"metadata":3}',
        json.dumps(
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": []}]},
                ]
            }
        ).encode(),
        b'{"contents":[{"parts":[{"functionCall":[]},{"functionResponse":{"id":7}}]}]}',
        b'{"n":NaN,"m":1e999}',
        b'{"n":' + b"9" * 5000 + b"}",
        b'{"s":"\\ud800"}',
    ],
    ids=range(8),
)
@pytest.mark.parametrize("path", [MESSAGES, RESPONSES, "/g/models/m:generateContent"])
def test_hostile_bodies_have_a_key(path: str, body: bytes) -> None:
    assert len(key_of(path, body).key) == 64


def test_headers_that_switch_features_are_in_the_key_and_no_others() -> None:
    base = key_of(RESPONSES, {}, ("OpenAI-Beta", "a, b"))

    assert base.key == key_of(RESPONSES, {}, ("openai-beta", "b,a"), ("x-other", "1")).key
    assert base.key != key_of(RESPONSES, {}, ("openai-beta", "a")).key
