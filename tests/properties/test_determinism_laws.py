"""The laws of the determinism contracts, with made-up inputs."""

import copy
import itertools
import json
import math
import os
import struct
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bernstein_determinism.channels import (
    AppendReducer,
    Reducer,
    Write,
    WriteKey,
    append_reducer,
    fold,
    last_write_reducer,
    messages_reducer,
    union_reducer,
)
from bernstein_determinism.ids import UlidFactory, first_unordered, parse_ulid, verify_replay_links
from bernstein_determinism.laws import (
    check_fingerprint_is_pure,
    check_prompt_is_pure,
    check_reducer_laws,
    fingerprint_inputs,
    json_values,
)
from bernstein_determinism.memory import memory_runtime
from bernstein_determinism.observers import Chunk, Emit, Observers, Stop
from bernstein_determinism.prompts import PromptContribution, compose_budgeted_prompt
from bernstein_determinism.scores import Outcome, ScoredReport, compare_scored
from bernstein_determinism.surroundings import measure_characters
from bernstein_determinism.turn_record import parse_turn
from bernstein_formats.errors import (
    AmbientAccessError,
    CanonicalizationError,
    DeterminismError,
    InvalidInput,
    ProviderFailed,
    RowMalformed,
    ToolFailed,
)
from bernstein_formats.fingerprint import Fingerprint, compute_fingerprint, temperature_bucket
from bernstein_formats.modes import RuntimeMode, readable_modes
from bernstein_formats.strict_json import canonicalize

# Cases a law; `make test-long` asks for ten times as many.
CASES = 6 * int(os.environ.get("BERNSTEIN_TEST_CASES", "50"))
many = settings(max_examples=CASES, deadline=None)
# Of what is slow.
FEW = CASES // 4


# --- canonical form ---------------------------------------------------------------------------


def reordered(value):
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(each) for each in value] if isinstance(value, list) else value


def frozen(value):
    if isinstance(value, dict):
        return MappingProxyType({name: frozen(each) for name, each in value.items()})
    return tuple(frozen(each) for each in value) if isinstance(value, list) else value


@many
@given(json_values())
def test_neither_the_order_of_members_nor_the_kind_of_container_shows(value):
    before = repr(value)
    data = canonicalize(value)
    assert canonicalize(reordered(value)) == data
    assert canonicalize(frozen(value)) == data
    assert canonicalize(json.loads(data)) == data
    assert repr(value) == before


def same_json(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return type(a) is type(b) and a == b if isinstance(a, str | None) else a == b


@many
@given(json_values(3), json_values(3))
def test_bytes_are_equal_exactly_for_equal_values(a, b):
    assert (canonicalize(a) == canonicalize(b)) == same_json(a, b)


doubles = st.integers(0, 2**64 - 1).map(
    lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]
)


@many
@given(doubles | st.integers(-(10**22), 10**22).map(float))
def test_every_double_comes_back_from_its_text_or_has_none(number):
    is_printed_as_a_large_integer = 2**53 <= abs(number) < 1e21
    if math.isfinite(number) and not is_printed_as_a_large_integer:
        data = canonicalize(number)
        assert float(data) == number
        assert canonicalize(json.loads(data)) == data
    else:
        with pytest.raises(CanonicalizationError):
            canonicalize(number)


anything: st.SearchStrategy[object] = st.one_of(
    st.binary(max_size=3),
    st.complex_numbers(),
    st.decimals(),
    st.fractions(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.sets(st.integers(), max_size=3),
    st.frozensets(st.text(max_size=2), max_size=3),
    st.integers(min_value=2**53),
    st.integers(max_value=-(2**53)),
    st.integers(2**53, 10**21 - 2**17).map(float),
    st.builds(MappingProxyType, st.builds(OrderedDict)),
    st.sampled_from([float("nan"), float("inf"), object(), ..., NotImplemented, print, len, int]),
    st.sampled_from([json, RuntimeMode.INTERACTIVE, (each for each in ""), range(3), iter([1])]),
    st.builds(OrderedDict, st.dictionaries(st.text(max_size=1), st.none(), max_size=2)),
    st.sampled_from(["\ud800", "a\udfff"]),
    st.dictionaries(st.integers(), st.none(), min_size=1, max_size=2),
    st.dictionaries(st.just("\ud800"), st.none(), min_size=1),
)


@many
@given(anything, st.lists(st.sampled_from(["a", "~/", 0]), max_size=4))
def test_what_has_no_canonical_form_is_refused_with_its_place(value, way):
    pointer = ""
    for name in reversed(way):
        value = {name: value} if isinstance(name, str) else [value]
    for name in way:
        pointer += "/" + str(name).replace("~", "~0").replace("/", "~1")
    with pytest.raises(CanonicalizationError) as caught:
        canonicalize(value)
    assert caught.value.metadata["path"].startswith(pointer)


def test_a_container_inside_itself_is_refused_and_one_that_is_there_twice_is_not():
    inner: list[object] = [1]
    assert canonicalize([inner, inner]) == b"[[1],[1]]"
    inner.append({"again": inner})
    with pytest.raises(CanonicalizationError, match="inside itself") as caught:
        canonicalize({"x": inner})
    assert caught.value.metadata["path"] == "/x/1/again"


# --- contract 1 -------------------------------------------------------------------------------

contributions = st.lists(
    st.builds(
        PromptContribution,
        id=st.text("abcdefgh", min_size=1, max_size=2),
        order=st.integers(0, 2),
        priority=st.integers(0, 2),
        text=st.text(max_size=40),
        required=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda each: each.id,
)


def compose(parts, budget=512):
    return compose_budgeted_prompt(parts, budget_tokens=budget, measure=measure_characters)


def test_composing_is_pure():
    check_prompt_is_pure(compose, contributions, examples=CASES)


@many
@given(contributions, st.integers(0, 3), st.integers(0, 255), st.integers(0, 255))
def test_two_budgets_in_one_bucket_give_equal_bytes(parts, bucket, a, b):
    def made(budget):
        try:
            return compose(parts, budget)
        except DeterminismError as error:
            return error.reason

    assert made(256 * bucket + a) == made(256 * bucket + b)


# --- contract 2 -------------------------------------------------------------------------------


def test_fingerprints_are_pure():
    check_fingerprint_is_pure(examples=CASES)


@many
@given(fingerprint_inputs(), fingerprint_inputs())
def test_every_field_of_the_key_counts(a, b):
    base = compute_fingerprint(a)
    for each in fields(a):
        other = replace(a, **{each.name: getattr(b, each.name)})
        made = compute_fingerprint(other)
        equal = getattr(a, each.name) == getattr(b, each.name)
        assert (made.composite == base.composite) == equal, each.name
        assert len(made.differing(base.components)) == (0 if equal else 1)


@many
@given(st.floats(0, 1000))
def test_a_temperature_is_within_half_a_step_of_its_bucket(value):
    bucket = temperature_bucket(value)
    assert abs(float(bucket) - value) <= 0.025 + 1e-9
    assert round(float(bucket) * 100) % 5 == 0
    assert temperature_bucket(float(bucket)) == bucket


# --- contract 3 -------------------------------------------------------------------------------


class Rule:
    """Stops or emits at the characters it is told, counting what it saw."""

    def __init__(self, name, letter):
        self.name, self.letter, self.seen = name, letter, 0

    def on_chunk(self, chunk):
        self.seen += chunk.text.count(self.letter)
        emits = tuple(Emit("out", [self.name, self.seen]) for _ in range(chunk.text.count("e")))
        return (*emits, Stop(f"{self.name} at {chunk.index}")) if self.seen > 2 else emits


@many
@given(st.lists(st.text("aeiou", max_size=4), max_size=8))
def test_the_same_chunks_get_the_same_verdicts_and_envelopes_in_key_order(texts):
    observers = Observers([lambda: Rule("first", "a"), lambda: Rule("second", "o")])
    chunks = [Chunk("t", at, text) for at, text in enumerate(texts)]
    once, twice = (observers.watch(chunks, 0, "node.0") for _ in range(2))
    assert once == twice
    keys = [write.key for _, write in once.envelopes]
    assert sorted(keys) == sorted(set(keys))
    assert [json.loads(key.writer.split(":")[1].lstrip("0") or "0") for key in sorted(keys)] == [
        at for at, _, kind, _ in once.verdicts if kind.startswith("emit")
    ]
    stops = [at for at, text in enumerate(texts) if len(once.delivered) == at + 1]
    assert len(once.delivered) == len(texts) or (once.stop_reason and stops)


# --- contract 4 -------------------------------------------------------------------------------

messages = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "version": st.integers(0, 3),
        "order": st.integers(0, 2),
        "deleted": st.booleans(),
    }
)


@pytest.mark.parametrize(
    ("reducer", "values"),
    [
        (append_reducer, json_values(2)),
        (union_reducer, json_values(2)),
        (messages_reducer, messages),
        (last_write_reducer, json_values(2)),
    ],
)
def test_a_reducer_of_ours_keeps_every_law(reducer, values):
    check_reducer_laws(reducer, values, examples=FEW)


class Concatenation:
    """What one would write first, and what does not commute."""

    def empty(self):
        return []

    def lift(self, write):
        return [write.value]

    def join(self, a, b):
        return [*a, *b]

    def view(self, state):
        return state


class Counter(Concatenation):
    """Commutes, and does not stay the same when joined with itself."""

    def empty(self):
        return 0

    def lift(self, write):
        return write.value

    def join(self, a, b):
        return a + b


def test_the_check_finds_a_reducer_that_does_not_commute():
    with pytest.raises(DeterminismError, match=r"contract 4 is broken") as caught:
        check_reducer_laws(Concatenation(), st.integers(0, 3), idempotent=False)
    assert "order" in caught.value.metadata["law"] or "(b, a)" in caught.value.metadata["law"]


class FirstComer(Concatenation):
    """Commutes as long as no two writes have one key."""

    def empty(self):
        return {}

    def lift(self, write):
        return {str(write.key): write.value}

    def join(self, a, b):
        return {**b, **a}


class InPlace(Concatenation):
    """Comes to the right state by changing its arguments."""

    def empty(self):
        return set()

    def lift(self, write):
        return {write.value}

    def join(self, a, b):
        a |= b
        return a

    def view(self, state):
        return sorted(state)


class Wearing(InPlace):
    """Reading it takes something out of it."""

    def join(self, a, b):
        return a | b

    def view(self, state):
        return [state.pop()] if state else []


class Forgetful(FirstComer):
    """Commutes as long as there are few writes."""

    def join(self, a, b):
        joined = {**a, **b}
        return dict(list(joined.items())[-12:])


@pytest.mark.parametrize(
    ("reducer", "law"),
    [
        (FirstComer(), "join(a, b) = join(b, a)"),
        (InPlace(), "join leaves its arguments as they were"),
        (Wearing(), "join leaves its arguments as they were"),
        (Forgetful(), ""),
    ],
)
def test_the_check_finds_collisions_changed_arguments_and_the_limit_of_many_writes(reducer, law):
    with pytest.raises(DeterminismError) as caught:
        check_reducer_laws(reducer, st.integers(0, 9))
    assert law in caught.value.metadata["law"]


def test_values_that_a_reducer_takes_none_of_check_nothing_and_are_refused():
    with pytest.raises(InvalidInput, match="takes none"):
        check_reducer_laws(messages_reducer, st.integers(), examples=20)


def test_a_reducer_that_looks_at_the_clock_is_found_although_the_clock_hardly_moves():
    class Dated(AppendReducer):
        def lift(self, write):
            return super().lift(replace(write, value=[write.value, time.time_ns() // 10**18]))

    with pytest.raises(AmbientAccessError, match="the clock"):
        check_reducer_laws(Dated(), st.integers(), examples=20)


def test_a_fingerprint_of_the_object_and_not_of_its_content_is_found():
    def by_object(key):
        return Fingerprint({}, f"v1:{id(key)}:{key.runtime_mode}")

    with pytest.raises(DeterminismError, match="computing twice"):
        check_fingerprint_is_pure(by_object, examples=20)


def test_a_counter_must_say_that_it_is_not_idempotent():
    check_reducer_laws(Counter(), st.integers(0, 3), idempotent=False, examples=FEW)
    with pytest.raises(DeterminismError, match=r"join\(a, a\) = a"):
        check_reducer_laws(Counter(), st.integers(0, 3))


@many
@given(st.data())
def test_any_interleaving_of_writers_gives_one_state(data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=8))
    writes = [
        Write(WriteKey(0, f"w{writer}", seq), [writer, seq])
        for writer, count in enumerate(counts)
        for seq in range(count)
    ]
    arrived = data.draw(st.permutations(writes))
    reducers: list[Reducer[Any]] = [append_reducer, union_reducer, last_write_reducer]
    for reducer in reducers:
        assert reducer.view(fold(reducer, arrived)) == reducer.view(fold(reducer, writes))


# --- contract 5 -------------------------------------------------------------------------------


@many
@given(
    st.lists(st.integers(0, 2**48 - 2), min_size=1, max_size=40),
    st.lists(st.integers(2**80 - 3, 2**80 - 1) | st.integers(0, 2**80 - 1), min_size=1),
)
def test_ids_increase_whatever_the_clock_does(times, randoms):
    clock, random80 = itertools.cycle(times), itertools.cycle(randoms)
    factory = UlidFactory(lambda: next(clock), lambda: next(random80))
    made = [factory.new() for _ in range(60)]
    assert first_unordered(made) is None
    assert [parse_ulid(each.lower()) for each in made] == made


@many
@given(st.text(max_size=30))
def test_only_ids_are_taken_for_ids(text):
    try:
        made = parse_ulid(text)
    except InvalidInput:
        return
    assert made == text.upper()
    assert len(made) == 26
    assert made[0] in "01234567"
    assert not set("ILOU") & set(made)


@many
@given(st.integers(1, 8), st.data())
def test_replay_links_are_an_order_preserving_one_to_one_map(count, data):
    factory = UlidFactory(lambda: 1, lambda: 0)
    originals = [factory.new() for _ in range(count)]
    rows = [(factory.new(), link) for link in originals]
    assert verify_replay_links(data.draw(st.permutations(rows)), originals) == ""
    moved = data.draw(st.permutations(originals))
    wrong = [(new, link) for (new, _), link in zip(rows, moved, strict=True)]
    assert bool(verify_replay_links(wrong, originals)) == (moved != originals)
    assert verify_replay_links(rows[1:], originals) != ""
    assert verify_replay_links([(each, each) for each in originals], originals) != ""


# --- modes ------------------------------------------------------------------------------------


def test_answers_flow_one_way_only():
    arrow = {
        RuntimeMode.INTERACTIVE: ["interactive"],
        RuntimeMode.HEADLESS_EVAL: ["headless-eval", "interactive"],
        RuntimeMode.HEADLESS_REPLAY: ["headless-replay", "headless-eval", "interactive"],
        RuntimeMode.HEADLESS_JOB: ["headless-job"],
        RuntimeMode.CODING_AGENT: ["coding-agent"],
    }
    assert {mode: list(readable_modes(mode)) for mode in RuntimeMode} == arrow
    for a, b in itertools.permutations(RuntimeMode, 2):
        assert not (a in readable_modes(b) and b in readable_modes(a))


# --- operations -------------------------------------------------------------------------------

score_sets = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xy")),
    st.decimals(0, 9, places=2),
)


@many
@given(score_sets, score_sets)
def test_swapping_two_score_reports_swaps_the_outcomes(a, b):
    one, two = (ScoredReport("s", "1", each) for each in (a, b))
    swapped = {
        Outcome.BETTER: Outcome.WORSE,
        Outcome.WORSE: Outcome.BETTER,
        Outcome.ADDED: Outcome.REMOVED,
        Outcome.REMOVED: Outcome.ADDED,
        Outcome.EQUAL: Outcome.EQUAL,
    }
    there, back = compare_scored(one, two).changes, compare_scored(two, one).changes
    assert [swapped[each.outcome] for each in there] == [each.outcome for each in back]
    assert {each.outcome for each in compare_scored(one, one).changes} <= {Outcome.EQUAL}
    turned = ScoredReport("s", "1", dict(reversed(b.items())))
    assert compare_scored(one, turned).changes == there


# --- the ledger -------------------------------------------------------------------------------


def places_in(value, way=()):
    yield way
    inner = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for name in inner:
        yield from places_in(value[name], (*way, name))


def recorded_turn():
    def agent(turn):
        def node(node):
            node.write("notes", node.tool("double", {"of": 1}, lambda of: of * 2))
            node.write("notes", node.ask([PromptContribution("p", 0, 0, "x")]))
            with suppress(ToolFailed):
                node.tool("fail", {}, str.upper)

        turn.step({"a": node, "b": node})

    runtime, _ = memory_runtime(
        str.upper, {"notes": append_reducer}, observers=[lambda: Rule("r", "a")]
    )
    return runtime.take_turn(agent, {"order": 1})


ROW = json.loads(json.dumps(recorded_turn().payload()))
WAYS = [way for way in places_in(ROW) if way]


@many
@given(st.sampled_from(WAYS), json_values(3) | anything)
def test_an_edited_turn_is_the_same_or_no_turn_whatever_stands_there(way, value):
    row = copy.deepcopy(ROW)
    inner = row
    for name in way[:-1]:
        inner = inner[name]
    inner[way[-1]] = value
    try:
        turn = parse_turn(row, 3)
    except RowMalformed:
        return
    # Of these a replay has its own.
    free = {"record_id", "replay_of_event_id", "mode", "source", "stored_mode"}
    assert turn == parse_turn(ROW) or free & set(way)


class Answering:
    """A model that fails where the question says so."""

    def __call__(self, prompt):
        if "fail" in prompt:
            raise ProviderFailed(f"no answer to {prompt}", provider="memory")
        return prompt


def only_go(fate):
    return {"go": "gone"}[fate]


@many
@given(st.lists(st.tuples(st.sampled_from(["ask", "tool"]), st.sampled_from(["fail", "go"]))))
def test_any_mix_of_calls_that_fail_and_do_not_is_replayed(calls):
    def agent(turn):
        def node(node):
            for number, (kind, fate) in enumerate(calls):
                try:
                    if kind == "ask":
                        said = node.ask([PromptContribution("p", 0, 0, f"{number} {fate}")])
                    else:
                        said = node.tool("t", {"fate": fate}, only_go)
                except (ProviderFailed, ToolFailed) as error:
                    said = [error.message, error.metadata]
                node.write("notes", said)

        turn.step({"a": node})

    channels = {"notes": append_reducer}
    row = memory_runtime(Answering(), channels)[0].take_turn(agent, "x")
    again = parse_turn(json.loads(json.dumps(row.payload())))
    replaying, _ = memory_runtime(str, channels, mode=RuntimeMode.HEADLESS_REPLAY)
    assert replaying.replay(again, agent).row.content_sha256() == row.content_sha256()
