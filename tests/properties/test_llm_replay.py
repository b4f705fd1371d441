"""Laws of replaying: what was recorded comes back, in order, once, and to its own lane."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.llm_calls import Caller, CallRequest, call_line
from bernstein_formats.llm_index import CallIndex, build_index, open_index
from bernstein_formats.llm_miss import Miss, MissKind
from bernstein_formats.llm_replay import Answer, Replay

prompts = st.sampled_from(["build?", "plan", "naïve 漢字", ""])
lanes = st.sampled_from(["", "a/1", "a/2", "b/1"])
seeds = st.sampled_from([None, 1, 2])
noise = st.sampled_from([b"", b"   ", b"{", b"[1]", b"\xff\xfe", b'{"key": [1], "response": ""}'])
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
responses = st.one_of(st.just(""), st.text(max_size=5), st.none(), st.integers())


def request(prompt: str, seed: int | None = None) -> CallRequest:
    return CallRequest("m", prompt, parameters={} if seed is None else {"seed": seed})


@st.composite
def recordings(draw):
    """A recording with foreign lines, and the calls that it holds."""
    calls = draw(st.lists(st.tuples(prompts, lanes, seeds), max_size=12))
    end = draw(ends)
    data, held = b"", []
    line = 0
    for at, (prompt, lane, seed) in enumerate(calls):
        for foreign in draw(st.lists(noise, max_size=2)):
            data += foreign + end
            line += 1
        caller = Caller(lane) if lane else None
        data += call_line(request(prompt, seed), f"answer {at}", ts=1.0, caller=caller)[:-1]
        data += end
        line += 1
        held.append((prompt, lane, seed, f"answer {at}", line))
    return data, held


def replay_of(data: bytes, *, strict: bool = True) -> Replay:
    index = open_index(build_index([data], b"state"), b"state")
    assert index is not None
    return Replay(index, lambda offset, length: data[offset : offset + length], strict=strict)


def answered(result: Answer | Miss) -> Answer:
    assert isinstance(result, Answer)
    return result


class PlainReplay:
    """The same by the words of the page, over a list in memory."""

    def __init__(self, held) -> None:
        self.waiting = list(held)

    def look_up(self, prompt: str, lane: str, seed: int | None):
        for open_lanes in ({lane}, {""}) if lane else (None,):
            for call in self.waiting:
                said, in_lane, with_seed, answer, _ = call
                # Only a bare row of the peer's shape says nothing about further fields.
                fits = with_seed == seed or (in_lane == "" and with_seed is None)
                if said == prompt and fits and (open_lanes is None or in_lane in open_lanes):
                    self.waiting.remove(call)
                    return answer
        return None


@given(recordings())
def test_asking_in_recorded_order_gives_everything_back(recording):
    data, held = recording
    replay = replay_of(data)
    for prompt, lane, seed, answer, line in held:
        got = answered(replay.look_up(request(prompt, seed), lane))
        if lane:
            assert (got.response, got.line) == (answer, line)
    assert replay.hits == len(held) == replay.cached_count


@given(recordings(), st.lists(st.tuples(prompts, lanes, seeds), max_size=20))
def test_any_order_of_requests_is_answered_as_the_plain_definition_says(recording, asked):
    data, held = recording
    replay, plain = replay_of(data), PlainReplay(held)
    for prompt, lane, seed in asked:
        got = replay.look_up(request(prompt, seed), lane)
        wanted = plain.look_up(prompt, lane, seed)
        assert (None if isinstance(got, Miss) else got.response) == wanted
    assert [each.line for each in replay.unused()] == [each[-1] for each in plain.waiting]
    assert replay.hits + replay.strict_violations == len(asked)
    assert replay.complete == (not plain.waiting and not replay.strict_violations)


@given(st.lists(responses, min_size=1, max_size=8))
def test_one_request_too_many_is_a_miss_that_counts_them(recorded):
    data = b"".join(call_line(request("p"), response, ts=1.0) for response in recorded)
    replay = replay_of(data)
    assert [answered(replay.look_up(request("p"))).response for _ in recorded] == recorded
    for _ in range(2):
        miss = replay.look_up(request("p"))
        assert isinstance(miss, Miss)
        assert (miss.kind, miss.recorded_count) == (MissKind.USED_UP, len(recorded))


@given(st.permutations(["a/1", "b/1", "c/1"] * 3), st.permutations(["a/1", "b/1", "c/1"] * 3))
def test_identical_requests_side_by_side_never_swap_their_answers(recorded, asked):
    own = defaultdict(list)
    data = b""
    for at, lane in enumerate(recorded):
        own[lane].append(at)
        data += call_line(request("poll"), at, ts=1.0, caller=Caller(lane))
    replay = replay_of(data)
    for lane in asked:
        assert answered(replay.look_up(request("poll"), lane)).response == own[lane].pop(0)


@given(recordings(), st.binary(max_size=200))
def test_no_bytes_crash_the_index(recording, garbage):
    data, held = recording
    index = CallIndex(build_index([data, garbage], b""))
    assert index.record_count >= len(held) - 1
    assert open_index(garbage, b"") is None


@given(recordings())
def test_an_index_of_another_state_or_length_is_not_used(recording):
    data, _ = recording
    index = build_index([data], b"size 10, changed at 3")
    assert open_index(index, b"size 10, changed at 3") is not None
    assert open_index(index, b"size 10, changed at 4") is None
    assert open_index(index[:-1], b"size 10, changed at 3") is None


@given(recordings(), st.lists(st.integers(0, 500), max_size=8))
def test_it_does_not_matter_where_a_recording_is_cut_into_chunks(recording, cuts):
    data, _ = recording
    chunks = [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data) + 500])]
    assert build_index(chunks, b"") == build_index([data], b"")
