"""The five contracts on chosen examples: bytes that are settled, and what each of them refuses."""

import asyncio
import functools
import hashlib
import inspect
import itertools
import os
import random
import secrets
import sys
import threading
import time
from collections import UserDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from bernstein_determinism.channels import Write, WriteKey, append_reducer, fold, messages_reducer
from bernstein_determinism.ids import UlidFactory, first_unordered
from bernstein_determinism.laws import check_fingerprint_is_pure, check_prompt_is_pure
from bernstein_determinism.observers import CONTINUE, Chunk, Emit, Observers, Stop
from bernstein_determinism.ports import ModelSettings, Question
from bernstein_determinism.prompts import (
    PromptContribution,
    RuntimeContext,
    RuntimeSection,
    StaticContext,
    StaticSection,
    compose_budgeted_prompt,
    quantize_budget,
    rendered,
)
from bernstein_formats import errors
from bernstein_formats.fingerprint import (
    COMPONENTS,
    FingerprintInput,
    FingerprintMetadata,
    compute_fingerprint,
    same_composite,
    temperature_bucket,
    turn_composite,
)
from bernstein_formats.modes import RuntimeMode, parse_mode
from bernstein_formats.strict_json import canonicalize

# --- canonical form ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"é"],"b":1}'),
        ([1, 1.0, -0.0, 1e21, 1e-7, 4.50, 2e-3], "[1,1,0,1e+21,1e-7,4.5,0.002]"),
        ({"\ue000": 2, "🚀": 1}, '{"🚀":1,"\ue000":2}'),
        ('"\\\b\f\n\r\t\x00\x1f/', '"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f/"'),
    ],
)
def test_canonical_bytes_are_those_of_rfc_8785(value, data):
    assert canonicalize(value) == data.encode()


def test_nesting_beyond_128_levels_is_refused():
    value: list[object] = []
    for _ in range(127):
        value = [value]
    assert canonicalize(value) == b"[" * 128 + b"]" * 128
    with pytest.raises(errors.CanonicalizationError, match="128 levels"):
        canonicalize([value])


def answering_with_errors() -> object:
    """A value that answers every question, also to its class, with an error."""

    class Hostile(type):
        def __getattribute__(cls, name):
            raise RuntimeError

        def __hash__(cls):
            raise RuntimeError

        def __eq__(cls, other):
            raise RuntimeError

        def __instancecheck__(cls, value):
            raise RuntimeError

    class Value(metaclass=Hostile):
        def __getattribute__(self, name):
            raise RuntimeError

    return Value()


class Endless(dict[str, int]):
    def items(self):
        return itertools.count()


class Lying(UserDict[str, int]):
    def items(self):
        raise RuntimeError


def itself_in_a_view():
    value: dict[str, object] = {}
    value["view"] = MappingProxyType(value)
    return value


def twice_in_itself(levels=120):
    value: list[object] = []
    for _ in range(levels):
        value = [value, value]
    return value


HOSTILE = {
    "metaclass": (lambda: {"x": answering_with_errors()}, "/x cannot be fingerprinted: a Value"),
    "view of what never ends": (lambda: MappingProxyType(Endless()), "a view of a Endless"),
    "view of what raises": (lambda: MappingProxyType(Lying()), "a view of a Lying"),
    "view of itself": (itself_in_a_view, "/view cannot be fingerprinted: a container inside"),
    "more than memory": (twice_in_itself, "larger than"),
    "digits without end": (lambda: [10**5000], "/0 cannot be fingerprinted: a whole number"),
    "line ends in names": (lambda: {"a\nb": {type("\x1b", (), {})()}}, r"/a\\nb cannot"),
    "control characters": (type("\x1b", (), {}), r"a \\x1b:"),
}


@pytest.mark.parametrize(("make", "text"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_value_is_refused_and_no_code_of_it_is_run(make, text):
    with pytest.raises(errors.CanonicalizationError, match=text):
        canonicalize(make())


def test_a_program_that_is_deep_in_its_stack_gets_the_same_error():
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]

    def deep(levels):
        return deep(levels - 1) if levels else canonicalize(nested)

    left = sys.getrecursionlimit() - len(inspect.stack(0))
    with pytest.raises(errors.CanonicalizationError, match="stack"):
        deep(left - 40)


def test_a_view_of_a_dictionary_is_the_dictionary():
    view = MappingProxyType({"b": MappingProxyType({}), "a": ()})
    assert canonicalize(MappingProxyType(view)) == b'{"a":[],"b":{}}'


# --- contract 1 -------------------------------------------------------------------------------

PARTS = [
    PromptContribution("low", order=0, priority=0, text="l" * 40),
    PromptContribution("must", order=2, priority=0, text="m" * 40, required=True),
    PromptContribution("high", order=1, priority=5, text="h" * 40),
]


def test_the_important_survives_a_tight_budget_and_order_is_the_declared_one():
    tight = compose_budgeted_prompt(PARTS, budget_tokens=90, measure=len, bucket=10)
    assert (tight.included, tight.dropped, tight.budget) == (("high", "must"), ("low",), 90)
    assert tight.data == b"h" * 40 + b"\n\n" + b"m" * 40
    assert tight.sha256 == hashlib.sha256(tight.data).hexdigest()
    full = compose_budgeted_prompt(PARTS, budget_tokens=500, measure=len)
    assert full.included == ("low", "high", "must")


def test_a_budget_that_the_required_parts_exceed_is_refused():
    with pytest.raises(errors.PromptBudgetError, match="need 40 tokens of 0"):
        compose_budgeted_prompt(PARTS, budget_tokens=255, measure=len)


def test_an_id_that_is_there_twice_is_refused():
    with pytest.raises(errors.InvalidInput, match="'low'"):
        compose_budgeted_prompt([*PARTS, PARTS[0]], budget_tokens=900, measure=len)


def test_budgets_are_rounded_down_and_never_negative():
    assert [quantize_budget(each) for each in (0, 255, 256, 600)] == [0, 0, 256, 512]
    hostile: list[Any] = [-1, 300.5, float("nan"), float("inf"), True]
    for tokens in hostile:
        with pytest.raises(errors.InvalidInput):
            quantize_budget(tokens)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 1),
        ("order", float("nan")),  # as great as it is small: any order of the parts would do
        ("order", None),
        ("priority", True),
        ("text", b"bytes"),
    ],
)
def test_a_part_that_has_no_certain_place_or_no_text_is_refused(field, value):
    fields: dict[str, Any] = {"id": "p", "order": 0, "priority": 0, "text": "t", field: value}
    with pytest.raises(errors.InvalidInput, match=f"{field} must be"):
        PromptContribution(**fields)


@pytest.mark.parametrize("size", [None, -1, float("nan"), 2.0])
def test_a_measure_that_gives_no_number_of_tokens_is_refused(size):
    with pytest.raises(errors.InvalidInput, match="measure"):
        compose_budgeted_prompt(PARTS, budget_tokens=900, measure=lambda _: size)


def test_a_static_section_sees_configuration_alone_and_cannot_change_it():
    given: dict[str, Any] = {"tone": "calm", "more": {"names": ["a"]}}
    static = StaticContext(given)
    given["more"]["names"].append("b")
    more: Any = static.config["more"]
    assert more == {"names": ("a",)}
    with pytest.raises(TypeError):
        more["names"] = ()
    sections = (
        StaticSection("s", 0, 0, lambda context: str(context.config["tone"])),
        RuntimeSection("r", 1, 0, lambda context: str(context.turn_input)),
    )
    one, other = (rendered(sections, RuntimeContext(static, text)) for text in ("a", "b"))
    made = [compose_budgeted_prompt(each, budget_tokens=512, measure=len) for each in (one, other)]
    assert made[0].sha256 != made[1].sha256
    assert made[0].static_sha256 == made[1].static_sha256
    with pytest.raises(TypeError):
        static.config["tone"] = "loud"  # type: ignore[index]  # that is the point
    assert not hasattr(static, "turn_input")


def test_the_check_of_prompts_finds_the_clock_and_shared_state():
    from hypothesis import strategies as st  # noqa: PLC0415

    with pytest.raises(errors.AmbientAccessError, match="the clock"):
        check_prompt_is_pure(lambda _: str(time.time()), st.integers())
    calls = itertools.count()
    with pytest.raises(errors.DeterminismError, match="contract 1"):
        check_prompt_is_pure(lambda value: f"{value} {next(calls)}", st.integers())


# --- contract 2 -------------------------------------------------------------------------------


def key(**fields) -> FingerprintInput:
    base = {
        "family": "anthropic",
        "model": "m",
        "call_class": "synthesize",
        "runtime_mode": RuntimeMode.INTERACTIVE,
        "messages": ({"role": "user", "content": "hi"},),
        "version": "1",
    }
    return FingerprintInput(**{**base, **fields})


def test_a_fingerprint_is_the_hash_of_its_components():
    made = compute_fingerprint(key(seed=1))
    assert set(made.components) < set(COMPONENTS)
    assert "temperature" not in made.components
    assert made.components["model"] == hashlib.sha256(b'"m"').hexdigest()
    whole = hashlib.sha256(canonicalize(dict(made.components))).hexdigest()
    assert made.composite == f"v1:{whole}"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": ({"role": "user", "session_id": "s"},)}, "/messages/0/session_id"),
        ({"messages": ({}, {"Message-ID": 1})}, "/messages/1/Message-ID"),
        ({"tools": ({"name": "t", "createdAt": 1},)}, "/tools/0/createdAt"),
        ({"parameters": {"USER_ID": "u"}}, "/parameters/USER_ID"),
        ({"parameters": {"metadata": {"user_id": "u"}}}, "/parameters/metadata/user_id"),
        (
            {"messages": ({"content": [[], {"a/b": ({"ts": 1},)}]},)},
            "/messages/0/content/1/a~1b/0/ts",
        ),
        ({"tools": ({"function": {"run-id": 1}},)}, "/tools/0/function/run-id"),
        ({"tools": ({"properties": {"user_id": "u-7"}},)}, "/tools/0/properties/user_id"),
    ],
)
def test_a_field_that_says_who_or_when_is_refused(fields, path):
    with pytest.raises(errors.IdentityFieldError) as caught:
        compute_fingerprint(key(**fields))
    assert caught.value.metadata["path"] == path


def test_names_that_a_tools_author_or_a_model_chose_are_no_identity():
    schema = {"type": "object", "properties": {"user_id": {"type": ["string", "null"]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    called = {"type": "tool_use", "id": "x", "input": {"user_id": "7"}}
    parsed = {"type": "function", "id": "y", "function": {"name": "f", "arguments": {"ts": 1}}}
    messages = ({"role": "assistant", "content": [called]}, {"tool_calls": [parsed]})
    assert compute_fingerprint(key(tools=(tool,), messages=messages)) != compute_fingerprint(key())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("family", None),
        ("model", 1),
        ("call_class", b"x"),
        ("version", RuntimeMode.INTERACTIVE),
        ("runtime_mode", "interactive"),
        ("messages", [{"role": "user"}]),
        ("messages", ("hi",)),
        ("tools", ({"a": 1}, UserDict())),
        ("temperature_bucket", 0.7),
        ("temperature_bucket", "0.72"),
        ("temperature_bucket", "-0.00"),
        ("seed", True),
        ("seed", 1.0),
        ("max_tokens", "4000"),
        ("provider", Path("openai")),
        ("parameters", [("a", 1)]),
    ],
)
def test_a_field_of_the_key_that_is_not_of_its_type_is_refused(field, value):
    with pytest.raises(errors.InvalidInput, match=field):
        key(**{field: value})


def test_what_has_no_canonical_form_is_told_with_its_field():
    for fields, path in (
        ({"seed": 2**60}, "/seed"),
        ({"messages": ({"a": {1}},)}, "/messages/0/a"),
    ):
        with pytest.raises(errors.CanonicalizationError) as caught:
            compute_fingerprint(key(**fields))
        assert caught.value.metadata["path"] == path


def test_the_key_has_no_place_for_a_session():
    with pytest.raises(TypeError, match="session_id"):
        key(session_id="s")


def test_who_and_when_go_with_a_question_and_not_into_its_key():
    settings = ModelSettings("m", "p")
    known = FingerprintMetadata("session", "turn", "message", "user", "event")
    keys = [
        Question(settings, "synthesize", "hi", "lane", metadata).key(
            RuntimeMode.INTERACTIVE, "1", None
        )
        for metadata in (FingerprintMetadata(), known)
    ]
    assert keys[0] == keys[1]


def conversation(first, second):
    return (
        {
            "role": "assistant",
            "tool_calls": [{"id": first, "type": "function"}, {"id": second, "type": "function"}],
        },
        {"role": "tool", "tool_call_id": second, "content": "2"},
        {"role": "tool", "tool_call_id": first, "content": "1"},
    )


def test_ids_that_a_provider_makes_up_count_by_their_place():
    a, b, swapped = (
        compute_fingerprint(key(messages=conversation(*ids))).composite
        for ids in (("call_x", "call_y"), ("tooluse_1", "tooluse_2"), ("b", "a"))
    )
    assert a == b == swapped
    other = (*conversation("x", "y")[:2], {"role": "tool", "tool_call_id": "y", "content": "1"})
    assert compute_fingerprint(key(messages=other)).composite != a


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0, "0.00"),
        (-0.0, "0.00"),
        (0.7, "0.70"),
        (0.72, "0.70"),
        (0.725, "0.75"),
        (0.025, "0.05"),
        (1, "1.00"),
        (1e300, "1" + "0" * 300 + ".00"),
    ],
)
def test_temperatures_go_in_as_the_nearest_bucket(value, bucket):
    assert temperature_bucket(value) == bucket


@pytest.mark.parametrize(
    "value", [-0.1, float("nan"), float("inf"), 10**400, -(10**400), True, "0.7", {1}]
)
def test_a_temperature_that_is_none_is_refused(value):
    with pytest.raises(errors.InvalidInput):
        temperature_bucket(value)


def test_fingerprints_of_two_schemes_are_neither_equal_nor_different():
    assert same_composite("v1:a", "v1:a")
    assert not same_composite("v1:a", "v1:b")
    with pytest.raises(errors.ReplayKeySchemeMismatchError):
        same_composite("v1:a", "v2:a")


def test_a_turn_of_one_call_has_that_calls_fingerprint():
    assert turn_composite(["v1:a"]) == "v1:a"
    assert turn_composite(["v1:a", "v1:b"]) != turn_composite(["v1:b", "v1:a"])


def test_the_check_of_fingerprints_finds_the_environment():
    def leaky(given):
        return compute_fingerprint(
            FingerprintInput(
                os.environ.get("FAMILY", ""), "m", "c", given.runtime_mode, given.messages, "1"
            )
        )

    with pytest.raises(errors.AmbientAccessError, match="the environment"):
        check_fingerprint_is_pure(leaky)


def test_an_unknown_mode_names_the_known_ones():
    assert parse_mode("headless-job") is RuntimeMode.HEADLESS_JOB
    with pytest.raises(errors.InvalidInput, match="interactive, headless-eval"):
        parse_mode("turbo")


# --- contract 3 -------------------------------------------------------------------------------


class Plain:
    name = "plain"

    def on_chunk(self, chunk):
        return CONTINUE


async def coroutine(self, chunk):
    await asyncio.sleep(0)


async def generator(self, chunk):
    yield CONTINUE


class CallableObject:
    async def __call__(self, chunk):
        await asyncio.sleep(0)


def with_method(method):
    made = Plain()
    made.on_chunk = method  # type: ignore[method-assign]  # that is the point
    return made


def wrapped(chunk):
    return CONTINUE


ASYNCHRONOUS = {
    "method": type("A", (Plain,), {"on_chunk": coroutine}),
    "generator": type("A", (Plain,), {"on_chunk": generator}),
    "partial": lambda: with_method(functools.partial(coroutine, None)),
    "partial of partial": lambda: with_method(
        functools.partial(functools.partial(generator), None)
    ),
    "object": lambda: with_method(CallableObject()),
    "partial of object": lambda: with_method(functools.partial(CallableObject())),
    "wrapped": lambda: with_method(functools.wraps(functools.partial(coroutine, None))(wrapped)),
}


@pytest.mark.parametrize("make", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_an_asynchronous_observer_is_refused_when_it_is_registered(make):
    with pytest.raises(errors.AsyncObserverError, match="asynchronous"):
        Observers([make])


def test_an_awaitable_that_gets_through_is_closed_and_refused():
    observers = Observers([lambda: with_method(lambda chunk: coroutine(None, chunk))])
    with pytest.raises(errors.AsyncObserverError):
        observers.watch([Chunk("t", 0, "x")], 0, "n.0")


@pytest.mark.parametrize("answer", [None, True, "stop", (CONTINUE, 1), [CONTINUE]])
def test_what_is_no_verdict_is_refused(answer):
    observers = Observers([lambda: with_method(lambda chunk: answer)])
    with pytest.raises(errors.ObserverContractError):
        observers.watch([Chunk("t", 0, "x")], 0, "n.0")


def test_all_see_the_chunk_at_which_somebody_stops_and_the_first_registered_wins():
    def stopper(name):
        made = with_method(lambda chunk: Stop(name) if chunk.index == 1 else Emit("c", name))
        made.name = name
        return made

    observers = Observers([lambda: stopper("b"), lambda: stopper("a")])
    seen = observers.watch([Chunk("t", at, "x") for at in range(5)], 0, "n.0")
    assert seen.stop_reason == "b"
    assert seen.delivered == ("x", "x")
    assert [write.value for _, write in sorted(seen.envelopes, key=lambda e: e[1].key)] == [
        "a",
        "b",
    ]


def test_two_observers_of_one_name_are_refused():
    with pytest.raises(errors.ObserverContractError, match="two observers"):
        Observers([Plain, Plain])


# --- contract 4 -------------------------------------------------------------------------------


def test_one_key_with_two_values_is_a_conflict():
    writes = [Write(WriteKey(0, "w", 0), value) for value in (1, 2)]
    with pytest.raises(errors.ChannelConflictError, match="number 0 of 'w'"):
        fold(append_reducer, writes)


def test_a_message_is_replaced_by_a_newer_version_and_taken_back_by_a_deletion():
    def message(name, version, **more):
        value = {"id": name, "version": version, "order": 0, **more}
        return Write(WriteKey(0, "w", 0), value)

    state = fold(
        messages_reducer,
        [
            message("a", 2, text="new"),
            message("a", 1, text="old"),
            message("b", 1),
            message("b", 2, deleted=True),
        ],
    )
    assert messages_reducer.view(state) == [{"id": "a", "version": 2, "order": 0, "text": "new"}]
    undeleted = fold(messages_reducer, [message("a", 1, deleted="no")])
    assert messages_reducer.view(undeleted) == [
        {"id": "a", "version": 1, "order": 0, "deleted": "no"}
    ]
    whole = {"id": "a", "version": 1, "order": 0}
    wrong: list[Any] = [{"id": 1}, whole | {"version": True}, whole | {"order": False}]
    for each in wrong:
        with pytest.raises(errors.InvalidInput, match="is no message"):
            messages_reducer.lift(Write(WriteKey(0, "w", 0), each))


# --- contract 5 -------------------------------------------------------------------------------


def test_an_id_is_26_characters_of_time_and_randomness():
    assert UlidFactory(lambda: 1700000000000, lambda: 0).new() == "01HF7YAT000000000000000000"


def test_20000_ids_under_a_clock_that_stops_and_goes_back_increase():
    times = random.Random(5)  # noqa: S311 - no secret
    factory = UlidFactory(lambda: times.choice([5, 7, 3, 2**40]), lambda: times.getrandbits(80))
    assert first_unordered([factory.new() for _ in range(20_000)]) is None


def test_random_bits_that_are_used_up_raise_the_millisecond():
    factory = UlidFactory(lambda: 5, lambda: 2**80 - 1)
    assert [factory.new() for _ in range(2)] == [
        "0000000005" + "Z" * 16,
        "0000000006" + "0" * 16,
    ]


def test_ids_of_many_threads_are_all_different():
    factory = UlidFactory.system()
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend([factory.new() for _ in range(500)]))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(made)) == 2000


def test_ids_of_all_runtimes_of_a_program_are_in_one_order():
    one, other = UlidFactory.system(), UlidFactory.system()
    made = [each.new() for _ in range(500) for each in (one, other)]
    assert first_unordered(made) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_program_makes_ids_of_its_own_also_while_the_clock_stands_still():
    standing = UlidFactory(lambda: 5, lambda: secrets.randbits(80))
    before = standing.new()
    reading, writing = os.pipe()
    for _ in range(2):
        child = os.fork()
        if not child:
            os.write(writing, standing.new().encode())
            os._exit(0)
        os.waitpid(child, 0)
    ids = [before, standing.new(), *(os.read(reading, 26).decode() for _ in range(2))]
    os.close(reading)
    os.close(writing)
    assert len(set(ids)) == 4
    assert min(ids) == before
