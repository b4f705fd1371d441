"""Parameter drift is never masked: each change alone makes another key."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from bernstein_formats.errors import InvalidInput
from bernstein_formats.http_key import HttpRequest, Keyed, keyed
from bernstein_formats.http_places import Place
from bernstein_formats.http_rule_file import RULE_SET, parse_rules

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = ["read", "write"]
RESULTS = {"t1": "one", "t2": "two"}

ANTHROPIC = {
    "model": "m",
    "max_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "top_k": 4,
    "stop_sequences": ["x"],
    "stream": True,
    "system": [{"type": "text", "text": "be kind"}],
    "thinking": {"type": "enabled", "budget_tokens": 9},
    "output_config": {"effort": "low"},
    "tool_choice": {"type": "auto"},
    "tools": [{"name": name, "input_schema": SCHEMA} for name in TOOLS],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": each, "name": "read", "input": {"path": each}}
                for each in RESULTS
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": each, "content": text}
                for each, text in RESULTS.items()
            ],
        },
    ],
}
CHAT = {
    "model": "m",
    "max_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "seed": 1,
    "stop": ["x"],
    "stream": True,
    "reasoning_effort": "low",
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "tools": [{"function": {"name": name, "parameters": SCHEMA}} for name in TOOLS],
    "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": each} for each in RESULTS]},
        *(
            {"role": "tool", "tool_call_id": each, "content": text}
            for each, text in RESULTS.items()
        ),
    ],
}
RESPONSES = {
    "model": "m",
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "stream": True,
    "store": False,
    "instructions": "be kind",
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "previous_response_id": "resp_1",
    "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in TOOLS],
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        *({"type": "function_call", "call_id": each, "name": "read"} for each in RESULTS),
        *(
            {
                "type": "function_call_output",
                "call_id": each,
                "output": f"Chunk ID: 0a1b2c\nWall time: 0.1 seconds\nExited with 0\n{text}",
            }
            for each, text in RESULTS.items()
        ),
    ],
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "be kind"}]},
    "generationConfig": {
        "temperature": 1,
        "topP": 0.5,
        "maxOutputTokens": 9,
        "seed": 1,
        "stopSequences": ["x"],
        "responseMimeType": "text/plain",
        "thinkingConfig": {"thinkingBudget": 9},
    },
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "tools": [{"functionDeclarations": [{"name": n, "parameters": SCHEMA} for n in TOOLS]}],
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": e, "name": "read"}} for e in RESULTS]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": e, "name": "read", "response": {"output": text}}}
                for e, text in RESULTS.items()
            ],
        },
    ],
}
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("/anthropic/v1/messages", ANTHROPIC),
    "chat": ("/openai/v1/chat/completions", CHAT),
    "responses": ("/openai/v1/responses", RESPONSES),
    "gemini": ("/gemini/v1beta/models/m:generateContent", GEMINI),
}


def put(place: str, value: Any) -> Callable[[Any], None]:
    """A change of one value; a place is names and positions between slashes."""

    def change(body: Any) -> None:
        *above, last = [int(each) if each.isdigit() else each for each in place.split("/")]
        for each in above:
            body = body[each]
        body[last] = value

    return change


def reverse(place: str) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for each in place.split("/"):
            body = body[int(each) if each.isdigit() else each]
        body.reverse()

    return change


def swap(place: str, first: int, second: int, member: str) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for each in place.split("/"):
            body = body[int(each) if each.isdigit() else each]
        one, two = body[first], body[second]
        if member == "functionResponse":
            one, two, name = one[member], two[member], "id"
        else:
            name = member
        one[name], two[name] = two[name], one[name]

    return change


DRIFT: list[tuple[str, str, Callable[[Any], None]]] = [
    ("anthropic", "model", put("model", "n")),
    ("anthropic", "temperature", put("temperature", 0.9)),
    ("anthropic", "temperature-spelled", put("temperature", 1.0)),
    ("anthropic", "top_p", put("top_p", 0.6)),
    ("anthropic", "top_k", put("top_k", 5)),
    ("anthropic", "max_tokens", put("max_tokens", 10)),
    ("anthropic", "stop", put("stop_sequences", ["y"])),
    ("anthropic", "message-text", put("messages/0/content/0/text", "hi ")),
    ("anthropic", "tool-schema", put("tools/0/input_schema", {})),
    ("anthropic", "tool-order", reverse("tools")),
    ("anthropic", "tool-choice", put("tool_choice", {"type": "any"})),
    ("anthropic", "system", put("system/0/text", "be unkind")),
    ("anthropic", "cache-mark", put("system/0/cache_control", {"type": "ephemeral"})),
    ("anthropic", "thinking", put("thinking/budget_tokens", 10)),
    ("anthropic", "effort", put("output_config/effort", "high")),
    ("anthropic", "stream", put("stream", False)),
    ("anthropic", "result", put("messages/2/content/0/content", "one!")),
    ("anthropic", "pairing", swap("messages/2/content", 0, 1, "tool_use_id")),
    ("anthropic", "metadata", put("metadata", {"other": 1})),
    ("anthropic", "unknown", put("brand_new", None)),
    ("chat", "model", put("model", "n")),
    ("chat", "temperature", put("temperature", 0.9)),
    ("chat", "top_p", put("top_p", 0.6)),
    ("chat", "max_tokens", put("max_tokens", 10)),
    ("chat", "stop", put("stop", ["y"])),
    ("chat", "seed", put("seed", 2)),
    ("chat", "message-text", put("messages/1/content", "ho")),
    ("chat", "tool-schema", put("tools/0/function/parameters", {})),
    ("chat", "tool-order", reverse("tools")),
    ("chat", "tool-choice", put("tool_choice", "none")),
    ("chat", "system", put("messages/0/content", "be unkind")),
    ("chat", "reasoning", put("reasoning_effort", "high")),
    ("chat", "response-format", put("response_format", {"type": "json_object"})),
    ("chat", "stream", put("stream", False)),
    ("chat", "result", put("messages/3/content", "one!")),
    ("chat", "pairing", swap("messages", 3, 4, "tool_call_id")),
    ("chat", "user", put("user", "somebody")),
    ("responses", "model", put("model", "n")),
    ("responses", "temperature", put("temperature", 0.9)),
    ("responses", "top_p", put("top_p", 0.6)),
    ("responses", "max_tokens", put("max_output_tokens", 10)),
    ("responses", "message-text", put("input/0/content/0/text", "ho")),
    ("responses", "tool-schema", put("tools/0/parameters", {})),
    ("responses", "tool-order", reverse("tools")),
    ("responses", "tool-choice", put("tool_choice", "none")),
    ("responses", "parallel", put("parallel_tool_calls", False)),
    ("responses", "system", put("instructions", "be unkind")),
    ("responses", "reasoning", put("reasoning/effort", "high")),
    ("responses", "response-format", put("text/format/type", "json_schema")),
    ("responses", "stream", put("stream", False)),
    ("responses", "store", put("store", True)),
    ("responses", "previous", put("previous_response_id", "resp_2")),
    (
        "responses",
        "exit-code",
        put(
            "input/3/output",
            "Chunk ID: 0a1b2c\nWall time: 0.1 seconds\nExited with 1\none",
        ),
    ),
    ("responses", "pairing", swap("input", 3, 4, "call_id")),
    ("gemini", "temperature", put("generationConfig/temperature", 0.9)),
    ("gemini", "top_p", put("generationConfig/topP", 0.6)),
    ("gemini", "max_tokens", put("generationConfig/maxOutputTokens", 10)),
    ("gemini", "stop", put("generationConfig/stopSequences", ["y"])),
    ("gemini", "seed", put("generationConfig/seed", 2)),
    ("gemini", "message-text", put("contents/0/parts/0/text", "ho")),
    (
        "gemini",
        "tool-schema",
        put("tools/0/functionDeclarations/0/parameters", {}),
    ),
    ("gemini", "tool-order", reverse("tools/0/functionDeclarations")),
    ("gemini", "tool-choice", put("toolConfig/functionCallingConfig/mode", "ANY")),
    ("gemini", "system", put("systemInstruction/parts/0/text", "be unkind")),
    ("gemini", "thinking", put("generationConfig/thinkingConfig/thinkingBudget", 8)),
    ("gemini", "response-format", put("generationConfig/responseMimeType", "text/x")),
    (
        "gemini",
        "result",
        put("contents/2/parts/0/functionResponse/response/output", "one!"),
    ),
    ("gemini", "pairing", swap("contents/2/parts", 0, 1, "functionResponse")),
]


def key_of(path: str, body: Any, *headers: tuple[str, str]) -> Keyed:
    return keyed(HttpRequest("POST", path, (), headers, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("protocol", "change"),
    [(protocol, change) for protocol, _, change in DRIFT],
    ids=[f"{protocol}-{name}" for protocol, name, _ in DRIFT],
)
def test_one_change_makes_another_key(protocol: str, change: Callable[[Any], None]) -> None:
    path, body = PATHS[protocol]
    changed = copy.deepcopy(body)
    change(changed)

    assert changed != body or repr(changed) != repr(body)
    assert key_of(path, body).key == key_of(path, copy.deepcopy(body)).key
    assert key_of(path, changed).key != key_of(path, body).key


@pytest.mark.parametrize("protocol", PATHS)
def test_path_and_features_are_in_the_key(protocol: str) -> None:
    path, body = PATHS[protocol]
    base = key_of(path, body, ("anthropic-beta", "a,b"), ("openai-beta", "a"))

    assert base.key != key_of(path, body, ("anthropic-beta", "a"), ("openai-beta", "a")).key
    assert base.key != key_of(path, body, ("anthropic-beta", "a,b")).key
    assert base.key != key_of(f"/other{path}", body).key
    query = HttpRequest("POST", path, (("alt", "sse"),), (), json.dumps(body).encode())
    assert keyed(query).key != key_of(path, body).key


def test_gemini_models_and_verbs_are_told_apart_by_their_paths() -> None:
    paths = [
        f"/gemini/v1beta/models/{model}:{verb}"
        for model in ("m", "n")
        for verb in ("generateContent", "streamGenerateContent")
    ]

    assert len({key_of(path, GEMINI).key for path in paths}) == 4


# --- the rule file --------------------------------------------------------------------------------


def test_every_rule_says_what_it_took_away() -> None:
    masked = key_of(*PATHS["responses"])
    named = key_of("/openai/v1/responses", {**RESPONSES, "prompt_cache_key": "k-1"})
    user = key_of("/anthropic/v1/messages", {**ANTHROPIC, "metadata": {"user_id": "u-1"}})

    head = "Chunk ID: 0a1b2c\nWall time: 0.1 seconds\n"
    assert masked.taken == {"responses.mask-exec-head": [head, head]}
    assert named.taken["responses.drop-prompt-cache-key"] == ['"k-1"']
    assert user.taken == {"anthropic.drop-user-id": ['"u-1"']}
    assert user.rules == {"anthropic.drop-user-id": 1}


def test_a_rule_set_is_known_by_its_bytes() -> None:
    again = parse_rules(RULE_SET.data)
    changed = parse_rules(RULE_SET.data + b"\n")

    assert (again.version, again.sha256_hex) == (RULE_SET.version, RULE_SET.sha256_hex)
    assert changed.sha256_hex != RULE_SET.sha256_hex


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{}",
        b'{"version":"1","rules":[]}',
        b'{"version":1,"rules":[{"name":"x"}]}',
        b'{"version":1,"rules":[{"name":"x","protocol":"y","do":"drop","places":[]}]}',
        RULE_SET.data.replace(b"(a[0-9a-f]{16})", b"(a)(b)"),
        RULE_SET.data.replace(b"(a[0-9a-f]{16})", b"("),
        RULE_SET.data.replace(b"metadata.user_id", b"metadata..user_id"),
    ],
)
def test_a_rule_file_that_cannot_be_understood_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_rules(data)


def test_a_place_is_found_where_it_says_and_nowhere_else() -> None:
    body: dict[str, Any] = {
        "a": [{"k": "x", "v": 1}, {"k": "y", "v": 2}, "no object"],
        "b": {"v": 3},
    }

    def values(text: str) -> list[Any]:
        return [holder[name] for holder, name in Place(text).spots(body, {})]

    assert values("a[].v") == [1, 2]
    assert values("a[k=y].v") == [2]
    assert values("a[k=x|y].v") == [1, 2]
    assert values("b.v") == [3]
    assert values("b[].v") == values("a.v") == values("c.v") == []
    for text in ("", "a..b", "a[k].v", "a[]]"):
        with pytest.raises(InvalidInput):
            Place(text)
