"""Gateway fixtures against the golden files: keys, written bytes, what is served and refused."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    BernsteinError,
    InvalidInput,
    ReplayDivergenceError,
    ReplayKeySchemeMismatchError,
    ReplayMissError,
)
from bernstein_formats.gateway_fixtures import GatewayReplay, fixture_line, parse_switch
from bernstein_formats.gateway_keys import encoded, parse_stored_key, stored_key

FOLDER = Path(__file__).parent / "data" / "llm"
INDEX = json.loads((FOLDER / "INDEX.json").read_bytes())
ERRORS: dict[str, type[BernsteinError]] = {
    "ReplayDivergenceError": ReplayDivergenceError,
    "ReplayKeySchemeMismatchError": ReplayKeySchemeMismatchError,
    "ReplayMissError": ReplayMissError,
}
# The peer raises another error, or its loader crashes: what ours answers to the first request.
OURS = {
    "045-gateway-empty": "ReplayMissError",
    "052-gateway-array-row": "A1",
    "053-gateway-bad-utf8": "A1",
}


def cases(kind: str) -> list[str]:
    return [each["name"] for each in INDEX if each["kind"] == kind]


def read(case: str, file: str) -> Any:
    return json.loads((FOLDER / case / file).read_bytes())


MAKERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$bytes": bytes.fromhex,
    "$tuple": lambda items: tuple(untagged(items)),
    "$pow10": lambda power: 10**power,
    "$decimal": Decimal,
    "$pairs": lambda pairs: {name: untagged(each) for name, each in pairs},
}


def untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [untagged(each) for each in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if tag in MAKERS:
        return MAKERS[tag](value[tag])
    return {name: untagged(each) for name, each in value.items()}


def test_keys_are_the_peers() -> None:
    given, wanted = (
        read("034-gateway-keys", "inputs.json"),
        read("034-gateway-keys", "expected.json"),
    )
    for components, expected in zip(given["components"], wanted["keys"], strict=True):
        values = untagged(components)
        if "raises" in expected:
            with pytest.raises(InvalidInput):
                stored_key(values)
            continue
        assert expected["encoding_hex"] == encoded(tuple(values)).hex()
        assert expected["v1"] == stored_key(values)
        assert expected["v2"] == stored_key(values, "v2")
    for text, parsed in zip(given["stored"], wanted["parsed"], strict=True):
        assert tuple(parsed) == parse_stored_key(text)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'v3'"):
        stored_key(["a"], "v3")


def test_written_lines_are_the_peers_bytes() -> None:
    given = read("035-gateway-record", "dispatches.json")
    lines = [
        fixture_line(
            each["kind"],
            each["key"],
            untagged(each["response"]),
            ts=given["base_ts"] + number,
            seq=number + 1,
            metadata=each.get("metadata"),
        )
        for number, each in enumerate(given["dispatches"])
    ]

    assert (FOLDER / "035-gateway-record" / "expected.jsonl").read_bytes() == b"".join(lines)


def replayed(case: str) -> GatewayReplay:
    path, facts = FOLDER / case / "events.jsonl", read(case, "case.json")
    return GatewayReplay(
        [path.read_bytes()] if path.exists() else None,
        source="events.jsonl",
        is_lenient=facts["lenient"],
        scheme=facts["key_scheme"],
    )


def test_a_missing_log_is_a_miss() -> None:
    assert read("044-gateway-missing", "expected.json")["raises"] == "ReplayMissError"
    with pytest.raises(ReplayMissError, match=r"events\.jsonl"):
        replayed("044-gateway-missing")


@pytest.mark.parametrize(
    "case", sorted(set(cases("gateway_replay")) - set(OURS) - {"044-gateway-missing"})
)
def test_answers_and_refusals_are_the_peers(case: str) -> None:
    replay = replayed(case)
    for (kind, key), expected in zip(
        read(case, "requests.json"), read(case, "expected.json"), strict=True
    ):
        if "raises" in expected:
            with pytest.raises(ERRORS[expected["raises"]]) as raised:
                replay.answer(kind, key)
            assert is_told(raised.value, expected.get("message", ""))
        else:
            assert expected == {"response": replay.answer(kind, key)}


def is_told(error: BernsteinError, message: str) -> bool:
    """Whether the facts of the peer's text are in our error."""
    facts = {part for part in message.replace(",", " ").split() if part.startswith("'v")}
    return all(fact.strip("';") in str(error.metadata) for fact in facts)


@pytest.mark.parametrize("case", sorted(OURS))
def test_where_the_peers_loader_stops_ours_serves_what_is_there(case: str) -> None:
    wanted = OURS[case]
    kind, key = read(case, "requests.json")[0]
    if wanted in ERRORS:
        with pytest.raises(ERRORS[wanted]):
            replayed(case).answer(kind, key)
    else:
        assert wanted == replayed(case).answer(kind, key)


def test_a_lenient_answer_out_of_turn_leaves_a_warning() -> None:
    replay = replayed("040-gateway-lenient")
    replay.answer("llm", "zz")

    assert len(replay.warnings) == 1
    assert "BERNSTEIN_REPLAY_LENIENT" in replay.warnings[0]


def test_switches_are_read_as_by_the_peer() -> None:
    for text, expected in read("032-env-flags", "expected.json").items():
        assert expected["recording"] == parse_switch(text)
        assert expected["lenient"] == parse_switch(text)


def test_what_an_answer_turns_into_is_told_by_its_own_method() -> None:
    class Answer:
        def to_dict(self) -> dict[str, JsonValue]:
            return {"a": 1}

    class Broken:
        def __repr__(self) -> str:
            return "<broken>"

        def to_dict(self) -> dict[str, JsonValue]:
            raise ValueError("no")

    assert b'"response": {"a": 1}' in fixture_line("k", "k", Answer(), ts=1.0, seq=1)
    assert b'"response": "<broken>"' in fixture_line("k", "k", Broken(), ts=1.0, seq=1)
