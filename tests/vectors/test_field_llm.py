"""Trouble met in the field with recorded calls and re-derivation: F01 to F04, F11, F12."""

import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.errors import InvalidInput
from bernstein_formats.llm_calls import (
    Caller,
    CallRequest,
    call_key,
    call_line,
    max_tokens_text,
    temperature_text,
)
from bernstein_formats.llm_index import CallIndex, build_index
from bernstein_formats.llm_miss import Miss, MissKind
from bernstein_formats.llm_replay import Answer, Replay, check_has_calls
from bernstein_formats.rederivation import rederive

DATA = Path(__file__).parent / "data"
FIELD = DATA / "field"


def replay_of(data: bytes) -> Replay:
    index = CallIndex(build_index([data], b""))
    return Replay(index, lambda offset, length: data[offset : offset + length])


def missed(result: Answer | Miss) -> Miss:
    assert isinstance(result, Miss)
    return result


def read(name: str):
    return json.loads((FIELD / name).read_text())


class TestF01OneRequestSeveralTimes:
    expected = read("F01/expected.json")

    def play(self) -> tuple[Replay, list[Any]]:
        replay = replay_of((FIELD / "F01/llm_calls.jsonl").read_bytes())
        model = self.expected["model"]
        return replay, [
            replay.look_up(CallRequest(model, prompt)) for prompt in self.expected["ask"]
        ]

    def test_the_answers_come_in_order_and_then_run_dry(self):
        _, results = self.play()
        assert [each.response for each in results[:3]] == self.expected["answers"][:3]
        assert results[3].kind is MissKind.USED_UP
        assert results[3].recorded_count == 3
        assert "3 of 3 recorded answers are already used" in results[3].text()

    def test_the_call_that_was_never_asked_for_is_listed(self):
        replay, _ = self.play()
        closed = self.expected["close_without_asking_plan"]
        assert replay.cached_count == closed["recorded"]
        assert replay.hits == closed["served"]
        unused = [{"line": each.line, "key": each.key} for each in replay.unused()]
        assert unused == closed["unused"]
        assert replay.complete == closed["complete"]


class TestF02OtherFieldsChangeTheAnswer:
    pairs = read("F02/pairs.json")
    five = ("prompt", "model", "provider", "temperature", "max_tokens", "response")

    def request(self, asked: dict[str, Any]) -> CallRequest:
        return CallRequest(
            asked["model"],
            asked["prompt"],
            asked["provider"],
            temperature_text(asked["temperature"]),
            max_tokens_text(asked["max_tokens"]),
            {name: value for name, value in asked.items() if name not in self.five},
        )

    def recorded(self) -> bytes:
        recorded = self.pairs["recorded_with"]
        return call_line(self.request(recorded), recorded["response"], ts=1.0)

    def test_the_key_stays_the_peers(self):
        row = json.loads(self.recorded())
        assert row["key"] == self.pairs["peer_key_for_every_request_below"]
        assert list(row)[:8] == [
            "ts",
            "key",
            "model",
            "provider",
            "temperature",
            "max_tokens",
            "prompt_len",
            "response",
        ]

    def test_the_same_request_is_answered(self):
        asked = self.request(self.pairs["recorded_with"])
        assert replay_of(self.recorded()).look_up(asked) == Answer("red", 1)

    @pytest.mark.parametrize("asked", pairs["asked_with"])
    def test_a_changed_field_is_a_miss_that_names_it(self, asked):
        recorded = self.pairs["recorded_with"]
        changed = sorted(name for name in asked if asked[name] != recorded.get(name))
        replay = replay_of(self.recorded())
        miss = missed(replay.look_up(self.request(asked)))
        assert miss.kind is MissKind.CHANGED
        assert [each.field for each in miss.differences] == changed
        assert all(f" {name} " in miss.text() for name in changed)
        assert replay.strict_violations == 1

    @pytest.mark.parametrize("asked", pairs["asked_with"])
    def test_a_row_of_the_peer_knows_no_other_fields_and_is_served(self, asked):
        recorded = {name: self.pairs["recorded_with"][name] for name in self.five}
        line = call_line(self.request(recorded), "red", ts=1.0)
        assert b"digest" not in line
        assert replay_of(line).look_up(self.request(asked)) == Answer("red", 1)

    def test_a_row_recorded_without_further_fields_does_not_answer_for_one_with_some(self):
        recorded = {name: self.pairs["recorded_with"][name] for name in self.five}
        line = call_line(self.request(recorded), "red", ts=1.0, caller=Caller("a/1"))
        miss = missed(replay_of(line).look_up(self.request(self.pairs["recorded_with"]), "a/1"))
        assert [each.field for each in miss.differences] == ["seed"]


class TestF03NumbersInAnotherSpelling:
    keys = read("F03/keys.json")

    def literal(self, told: str) -> str:
        if told == "0.7 after a float32 field":
            return "0.699999988079071"
        return "None" if told == "null" else told.rsplit(" ", 1)[-1]

    @pytest.mark.parametrize("case", keys["cases"])
    def test_the_key_is_made_from_the_literal_text(self, case):
        texts = [self.literal(case[name]) for name in ("temperature", "max_tokens")]
        key = call_key(self.keys["model"], self.keys["prompt"], self.keys["provider"], *texts)
        assert key == case["key"]

    @pytest.mark.parametrize(
        ("recorded", "asked", "note"),
        [
            ("1", "1.0", "another spelling"),
            ("1.0", "1", "another spelling"),
            ("0.0", "-0.0", "another spelling"),
            ("0.7", "0.699999988079071", "32-bit float"),
            ("0.699999988079071", "0.7", "32-bit float"),
            ("0.7", "0.8", ""),
            ("None", "0.7", ""),
            ("1e+300", "0.7", ""),
        ],
    )
    def test_a_miss_says_when_only_the_spelling_differs(self, recorded, asked, note):
        line = call_line(CallRequest("m", "p", temperature=recorded), "yes", ts=1.0)
        miss = missed(replay_of(line).look_up(CallRequest("m", "p", temperature=asked)))
        assert miss.kind is MissKind.CHANGED
        (difference,) = miss.differences
        assert (difference.field, difference.recorded) == ("temperature", recorded)
        assert note in difference.note
        assert bool(note) == bool(difference.note)
        assert f"recorded {recorded}, asked {asked}" in miss.text()


class TestF04AnEmptyAnswerIsAnAnswer:
    expected = read("F04/expected.json")

    @pytest.mark.parametrize("name", ["llm_calls.jsonl", "only_empty.jsonl"])
    def test_it_is_served_before_the_next_one(self, name):
        data = (FIELD / "F04" / name).read_bytes()
        row = json.loads(data.splitlines()[0])
        check_has_calls(CallIndex(build_index([data], b"")), name)
        replay = replay_of(data)
        # The case gives no prompt: any of the recorded length stands in, under the recorded key.
        asked = _KeyedRequest(row["model"], "x" * row["prompt_len"])
        object.__setattr__(asked, "wanted", row["key"])
        results = [replay.look_up(asked) for _ in self.expected[name]]
        shown = ["MISS" if isinstance(each, Miss) else each.response for each in results]
        assert shown == self.expected[name]


class _KeyedRequest(CallRequest):
    """A request of which only the key is known; the case does not tell the prompt."""

    wanted = ""

    def digest(self) -> bytes:
        return bytes.fromhex(self.wanted)


def test_f11_half_an_emoji_in_a_prompt_is_refused_with_its_place():
    prompt = json.loads(read("F11/cases.json")["lone_high_in_json"])
    with pytest.raises(InvalidInput) as caught:
        CallRequest("m", prompt).key()
    assert caught.value.metadata == {"field": "prompt", "offset": "1"}
    with pytest.raises(InvalidInput):
        call_line(CallRequest("m", prompt), "paid for", ts=1.0)


def test_f11_half_an_emoji_in_a_response_is_kept_as_its_escape():
    response = json.loads(read("F11/cases.json")["lone_high_in_json"])
    line = call_line(CallRequest("m", "p"), response, ts=1.0)
    assert b'"x\\ud83d"' in line
    assert replay_of(line).look_up(CallRequest("m", "p")) == Answer(response, 1)


class TestF12TheAgentDied:
    expected = read("F12/expected.json")

    def test_a_second_claim_without_a_release_names_the_loss(self):
        wanted = self.expected["no_release.jsonl"]
        answer = rederive([(FIELD / "F12/no_release.jsonl").read_bytes()], "f12")
        got = {name: answer.as_json()[name] for name in wanted if name != "explain"}
        assert got == {name: wanted[name] for name in got}
        assert "ag-1 was lost at step 2 (agent_lost)" in answer.reason
        assert "no task_retried row released the claim" in answer.reason

    def test_with_a_release_it_follows(self):
        wanted = self.expected["with_release.jsonl"]
        answer = rederive([(FIELD / "F12/with_release.jsonl").read_bytes()], "f12")
        assert (answer.ok, answer.derived_head) == (wanted["ok"], wanted["head"])

    def test_an_agent_that_was_reaped_by_name_alone_is_found_too(self):
        folder = DATA / "re-derivation" / "052-already-claimed-after-reap"
        (journal,) = folder.glob("sdd/runs/*/journal.jsonl")
        assert (
            "g1 was lost at step 2 (agent_reaped)"
            in rederive([journal.read_bytes()], journal.parent.name).reason
        )


def test_the_real_run_of_the_peer_gets_the_peers_own_verdict():
    """Its orchestrator records a retry under another id: see the folder's README."""
    folder = DATA / "real-run"
    told = (folder / "expected.txt").read_text()
    document = told[told.index("{") : told.index("\n}") + 2]
    run_id = json.loads(document)["run_id"]
    journal = (folder / "sdd" / "runs" / run_id / "journal.jsonl").read_bytes()
    assert rederive([journal], run_id).as_json() == json.loads(document)
