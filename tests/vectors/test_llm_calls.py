"""Recorded model calls against the golden files: keys, written bytes, replays."""

import json
from pathlib import Path

import pytest

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, ReplayRecordingMissingError
from bernstein_formats.llm_calls import (
    DEFAULT_PROVIDER,
    CallRequest,
    call_line,
    max_tokens_text,
    temperature_text,
)
from bernstein_formats.llm_index import CallIndex, build_index
from bernstein_formats.llm_miss import Miss
from bernstein_formats.llm_replay import Replay, check_has_calls

FOLDER = Path(__file__).parent / "data" / "llm"
INDEX = json.loads((FOLDER / "INDEX.json").read_text())

KINDS_HERE = ("llm_keys", "llm_record", "llm_replay", "call_llm")

KINDS_ELSEWHERE = {
    "env": "tests/unit/test_run_environment and test_gateway_fixtures",
    "gateway_keys": "test_gateway_fixtures",
    "gateway_record": "test_gateway_fixtures",
    "gateway_replay": "test_gateway_fixtures",
    "pair": "test_provider_state",
    "provider_rows": "test_provider_state",
    "provider_verify": "test_provider_state",
    "provider_sidecar": "test_provider_state",
    "thread": "test_thread",
    "thread_client": "test_thread",
}

# The peer crashes on the hostile line or drops an empty answer; ours serves what was recorded.
OURS: dict[str, list[JsonValue]] = {
    "024-falsy-responses": ["A", "", None, 0, 12.5],
    "027-crash-array-row": ["hotel #0"],
    "028-crash-bad-utf8": ["hotel #0"],
    "029-crash-huge-int": ["hotel #0"],
    "030-crash-list-key": ["hotel #0"],
}


def cases(kind: str) -> list[str]:
    return [each["name"] for each in INDEX if each["kind"] == kind]


def read(case: str, name: str):
    return json.loads((FOLDER / case / name).read_text())


def untagged(value):
    if isinstance(value, dict) and list(value) == ["$float"]:
        return float(value["$float"])
    return value


def request(asked) -> CallRequest:
    temperature, max_tokens = asked.get("temperature", 0.7), asked.get("max_tokens", 4000)
    return CallRequest(
        asked["model"],
        asked["prompt"],
        str(asked.get("provider", DEFAULT_PROVIDER)),
        temperature_text(untagged(temperature)),
        max_tokens_text(untagged(max_tokens)),
    )


def replay(case: str) -> Replay:
    path = FOLDER / case / "llm_calls.jsonl"
    data = path.read_bytes() if path.exists() else b""
    index = CallIndex(build_index([data], b""))
    strict = read(case, "case.json")["strict"]
    return Replay(index, lambda offset, length: data[offset : offset + length], strict=strict)


def outcome(result):
    """The result in the words of the golden file."""
    if not isinstance(result, Miss):
        return {"response": result.response}
    text = result.text("<PATH>/llm_calls.jsonl")
    return {"raises": "ReplayMissError", "text": text, "key": result.key, "model": result.model}


def test_every_case_is_run_here_or_elsewhere():
    assert {each["kind"] for each in INDEX} == {*KINDS_HERE, *KINDS_ELSEWHERE}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        *zip(
            read("001-prompt-keys", "inputs.json"),
            read("001-prompt-keys", "expected.json"),
            strict=True,
        )
    ],
)
def test_the_key_is_the_peers(asked, expected):
    if "raises" in expected:
        with pytest.raises(InvalidInput, match="half a character"):
            request(asked).key()
        return
    assert request(asked).key() == expected["key"]


@pytest.mark.parametrize("case", cases("llm_record"))
def test_the_recorded_bytes_are_the_peers(case):
    written = b""
    for call, expected in zip(
        read(case, "calls.json"), read(case, "expected.json")["results"], strict=True
    ):
        if expected is None:
            written += call_line(request(call), call["response"], ts=call["now"])
        else:
            with pytest.raises(InvalidInput):
                call_line(request(call), call["response"], ts=call["now"])
    assert written == (FOLDER / case / "expected.jsonl").read_bytes()


@pytest.mark.parametrize("case", [name for name in cases("llm_replay") if name not in OURS])
def test_a_replay_answers_as_the_peer_does(case):
    played = replay(case)
    expected = read(case, "expected.json")["replay"]
    assert played.cached_count == expected["cached_count"]
    for asked, wanted in zip(read(case, "requests.json"), expected["results"], strict=True):
        got = outcome(played.look_up(request(asked)))
        if "raises" in wanted:
            assert got.pop("text").startswith(wanted["message_prefix"])
            assert got == {name: wanted[name] for name in ("raises", "key", "model")}
        elif not played.strict and wanted == {"response": None}:
            assert got["raises"] == "ReplayMissError"
        else:
            assert got == wanted
    counters = played.hits, played.misses, played.strict_violations
    assert counters == tuple(expected[name] for name in ("hits", "misses", "strict_violations"))
    assert played.coverage_line("<PATH>") == expected["coverage_line"]


@pytest.mark.parametrize("case", cases("llm_replay"))
def test_opening_refuses_an_empty_recording_as_the_peer_does(case):
    played = replay(case)
    opened = read(case, "expected.json")["open_replay_store"]
    if opened.get("raises") == "ReplayRecordingMissingError":
        with pytest.raises(ReplayRecordingMissingError) as caught:
            check_has_calls(played._index, "<PATH>/llm_calls.jsonl")
        assert str(caught.value).startswith(opened["message_prefix"])
    elif played.strict:
        check_has_calls(played._index, "<PATH>/llm_calls.jsonl")


def test_the_wired_client_records_and_replays_as_the_peers():
    case = "033-call-llm-wiring"
    calls, expected = read(case, "calls.json"), read(case, "expected.json")
    data = b"".join(
        call_line(request(asked), response, ts=1700000000.125)
        for asked, response in zip(calls, expected["record_results"], strict=True)
    )
    assert (FOLDER / case / "expected.jsonl").read_bytes() == data
    index = CallIndex(build_index([data], b""))
    asked = [*calls, calls[0], {"prompt": "unseen", "model": "m"}]
    played = Replay(index, lambda offset, length: data[offset : offset + length], strict=True)
    for each, wanted in zip(asked, expected["strict"]["results"], strict=True):
        got = outcome(played.look_up(request(each)))
        if isinstance(wanted, str):
            assert got == {"response": wanted}
        else:
            assert (got["raises"], got["key"]) == (wanted["raises"], wanted["key"])
    assert played.coverage_line("<PATH>") == expected["strict"]["coverage_line"]


@pytest.mark.parametrize(("case", "responses"), list(OURS.items()))
def test_a_recording_that_the_peer_cannot_read_is_served(case, responses):
    played = replay(case)
    results = [played.look_up(request(asked)) for asked in read(case, "requests.json")]
    assert [outcome(each) for each in results] == [{"response": each} for each in responses]


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ("020-torn-tail", (7,)),
        ("021-blank-crlf", ()),
        ("022-bom", (1,)),
        ("023-garbage-lines", (1, 3)),
        ("024-falsy-responses", ()),
        ("026-rows-without-key", (1, 2, 3)),
        ("027-crash-array-row", (2,)),
        ("028-crash-bad-utf8", (2,)),
        ("029-crash-huge-int", (1,)),
        ("030-crash-list-key", (1,)),
        ("031-glued-rows", (1,)),
    ],
)
def test_no_line_is_dropped_in_silence(case, lines):
    assert replay(case).discarded_lines() == lines
