"""One replay: whose answer is whose, what a miss says, and what is never served."""

import pytest

from bernstein_formats.errors import RecordingChanged, ReplayMissError, RowMalformed
from bernstein_formats.llm_calls import Caller, CallRequest, call_line
from bernstein_formats.llm_index import CallIndex, build_index
from bernstein_formats.llm_miss import Miss, MissKind
from bernstein_formats.llm_replay import Answer, Replay

POLL = CallRequest("m", "green?")


def replay_of(*lines: bytes, strict: bool = True) -> Replay:
    data = b"".join(lines)
    index = CallIndex(build_index([data], b""))
    return Replay(index, lambda offset, length: data[offset : offset + length], strict=strict)


def line(response: str, lane: str = "", request: CallRequest = POLL) -> bytes:
    return call_line(request, response, ts=1.0, caller=Caller(lane) if lane else None)


def missed(result: Answer | Miss) -> Miss:
    assert isinstance(result, Miss)
    return result


def test_a_lane_gets_its_own_answers_first_and_then_those_of_no_lane():
    replay = replay_of(line("anyone's"), line("b's", "b/1"), line("a's", "a/1"))
    assert replay.look_up(POLL, "a/1") == Answer("a's", 3)
    assert replay.look_up(POLL, "a/1") == Answer("anyone's", 1)
    miss = missed(replay.look_up(POLL, "a/1"))
    assert (miss.kind, miss.recorded_count) == (MissKind.USED_UP, 2)
    assert replay.look_up(POLL, "b/1") == Answer("b's", 2)


def test_a_caller_without_a_lane_takes_them_as_recorded():
    replay = replay_of(line("b's", "b/1"), line("anyone's"), line("a's", "a/1"))
    assert [replay.look_up(POLL) for _ in range(3)] == [
        Answer("b's", 1),
        Answer("anyone's", 2),
        Answer("a's", 3),
    ]


def test_an_answer_of_another_lane_is_a_miss_that_names_the_lane():
    miss = missed(replay_of(line("b's", "b/1")).look_up(POLL, "a/1"))
    assert miss.kind is MissKind.CHANGED
    assert [each.field for each in miss.differences] == ["lane"]
    assert "lane (recorded 'b/1', asked 'a/1')" in miss.text()


def test_requests_that_differ_in_a_further_field_find_their_own_answers():
    one, two = (CallRequest("m", "p", parameters={"seed": seed}) for seed in (1, 2))
    replay = replay_of(line("first", request=one), line("second", request=two))
    assert replay.look_up(two) == Answer("second", 2)
    assert replay.look_up(one) == Answer("first", 1)


def test_a_miss_tells_the_nearest_call_and_how_to_go_on():
    recorded = CallRequest("m-small", "Pick a colour", temperature="0.2")
    replay = replay_of(
        line("x", request=CallRequest("other", "else")), line("red", request=recorded)
    )
    miss = missed(replay.look_up(CallRequest("m-small", "Pick a colour")))
    assert miss.kind is MissKind.CHANGED
    assert miss.nearest is not None
    assert miss.nearest.line == 2
    text = miss.text("runs/r/llm_calls.jsonl")
    for part in (
        "Deterministic replay miss: no recorded response for model='m-small'",
        "in runs/r/llm_calls.jsonl.",
        "temperature (recorded 0.2, asked 0.7)",
        "line 2: model 'm-small', provider 'openrouter_free', temperature 0.2, max_tokens 4000,",
        "prompt of 13 characters",
        "BERNSTEIN_DETERMINISTIC_SEED",
        "BERNSTEIN_REPLAY_ALLOW_LIVE_MISS=1",
    ):
        assert part in text


def test_a_changed_prompt_was_never_recorded_but_the_nearest_call_is_shown():
    miss = missed(replay_of(line("yes", "a/1")).look_up(CallRequest("m", "red?"), "a/1"))
    assert miss.kind is MissKind.NEVER_RECORDED
    assert [each.field for each in miss.differences] == ["prompt"]
    assert miss.nearest is not None
    assert miss.nearest.prompt_sha256[:12] in miss.text()


def test_a_miss_becomes_the_error_with_the_facts_as_metadata():
    error = missed(replay_of(line("yes")).look_up(CallRequest("m2", "green?"))).error()
    assert isinstance(error, ReplayMissError)
    assert error.metadata["kind"] == "changed"
    assert error.metadata["model"] == "m2"
    assert error.metadata["differing_fields"] == "model"
    assert error.metadata["nearest_line"] == "1"
    assert len(error.metadata["key"]) == 64


def test_a_miss_counts_as_a_violation_or_as_a_miss():
    strict, loose = replay_of(), replay_of(strict=False)
    strict.look_up(POLL)
    loose.look_up(POLL)
    assert (strict.strict_violations, strict.misses) == (1, 0)
    assert (loose.strict_violations, loose.misses) == (0, 1)
    assert loose.coverage_line("d") == (
        "replay-coverage run_dir=d cached=0 hits=0 misses=1 strict_violations=0 strict=False"
    )


def test_strange_types_in_a_row_are_compared_and_shown_all_the_same():
    strange = b'{"key": "k", "response": 1, "model": [1], "prompt_len": "x", "parameters": 7}\n'
    miss = missed(replay_of(strange).look_up(POLL))
    assert miss.kind is MissKind.NEVER_RECORDED
    assert "model '[1]'" in miss.text()


def test_an_exact_integer_is_served_exactly():
    row = line("0").replace(b'"response": "0"', b'"response": 123456789012345678901')
    assert replay_of(row).look_up(POLL) == Answer(123456789012345678901, 1)


def test_a_recording_that_changed_under_the_replay_is_noticed():
    data = line("yes")
    index = CallIndex(build_index([data], b""))
    torn = Replay(index, lambda offset, length: data[offset : offset + length // 2])
    with pytest.raises(RecordingChanged, match="line 1"):
        torn.look_up(POLL)
    other = line("yes", request=CallRequest("m", "other?"))
    swapped = Replay(index, lambda offset, length: other)
    with pytest.raises(RecordingChanged, match="line 1"):
        swapped.look_up(POLL)


def test_forged_keys_that_all_begin_alike_are_refused():
    rows = [b'{"key": "%064x", "response": ""}\n' % at for at in range(1500)]
    with pytest.raises(RowMalformed, match="forged"):
        build_index(rows, b"")


def test_a_key_that_is_no_hash_is_counted_and_listed():
    replay = replay_of(b'{"key": "plain", "model": "m", "response": "x"}\n', line("yes"))
    assert replay.cached_count == 2
    assert replay.look_up(POLL) == Answer("yes", 2)
    assert [(each.line, each.key, each.model) for each in replay.unused()] == [(1, "plain", "m")]
