"""Checks of the contracts with made-up inputs: a broken law is shown by the smallest example.

Built on hypothesis (extra `determinism`). The same check says the same every time: examples are
derived from the check itself, not from a clock. More examples explore more.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bernstein_determinism.ambient import forbid_ambient
from bernstein_determinism.channels import Reducer, Write, WriteKey, fold
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import BernsteinError, DeterminismError, InvalidInput
from bernstein_formats.fingerprint import Fingerprint, FingerprintInput, compute_fingerprint
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.strict_json import MAX_INTEGER, canonicalize

S = TypeVar("S")
Input = TypeVar("Input")

DEFAULT_EXAMPLES: Final = 200
_PART_WRITES_MAX: Final = 16
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def json_values(max_leaves: int = 6) -> st.SearchStrategy[JsonValue]:
    """Values that may be fingerprinted."""
    leaves: st.SearchStrategy[Any] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-MAX_INTEGER, MAX_INTEGER),
        st.floats(-MAX_INTEGER, MAX_INTEGER),
        st.floats(1e21, allow_infinity=False),
        _TEXTS,
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
        max_leaves=max_leaves,
    )


def fingerprint_inputs() -> st.SearchStrategy[FingerprintInput]:
    """Inputs of `compute_fingerprint`, without fields that say who or when."""
    messages = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": _TEXTS}
    )
    return st.builds(
        FingerprintInput,
        family=_TEXTS,
        model=_TEXTS,
        call_class=st.sampled_from(["synthesize", "judge", "plan"]),
        runtime_mode=st.sampled_from(RuntimeMode),
        messages=st.lists(messages, max_size=3).map(tuple),
        version=st.sampled_from(["1", "2"]),
        temperature_bucket=st.none() | st.sampled_from(["0.00", "0.70"]),
        seed=st.none() | st.integers(0, 9),
        max_tokens=st.none() | st.integers(1, 4000),
        provider=st.none() | _TEXTS,
    )


def check_reducer_laws(
    reducer: Reducer[S],
    values: st.SearchStrategy[Any],
    *,
    examples: int = DEFAULT_EXAMPLES,
    idempotent: bool = True,
) -> None:
    """Check a reducer with states made of writes of these values. Raises DeterminismError, and
    AmbientAccessError for one that looks at the clock or the like.

    It must commute, associate, keep what it is joined with nothing, give one state for any order
    and grouping of up to 48 writes, also where two of them have one key, and leave alone what it is
    given. A counter cannot be `idempotent`, and says so. Values that the reducer takes none of
    check nothing, and are refused.
    """
    taken = 0

    def law(parts: Sequence[Sequence[Write]], moved: Sequence[Write]) -> None:
        nonlocal taken
        seen = _Seen(reducer, parts)
        taken += seen.has_writes
        a, b, c = seen.states
        seen.same(
            "join(a, b) = join(b, a)",
            lambda: reducer.join(a(), b()),
            lambda: reducer.join(b(), a()),
        )
        seen.same(
            "join(join(a, b), c) = join(a, join(b, c))",
            lambda: reducer.join(reducer.join(a(), b()), c()),
            lambda: reducer.join(a(), reducer.join(b(), c())),
        )
        seen.same("join(a, empty) = a", lambda: reducer.join(a(), reducer.empty()), a)
        if idempotent:
            seen.same("join(a, a) = a", lambda: reducer.join(a(), a()), a)
        seen.leaves_alone(a, b)
        writes = [*itertools.chain(*parts)]
        seen.same(
            "any order of writes gives one state",
            lambda: fold(reducer, writes),
            lambda: _one_by_one(reducer, moved),
        )

    def law_alone(drawn: tuple[list[Write], list[Write], list[Write], random.Random]) -> None:
        *parts, shuffler = drawn
        moved = [*itertools.chain(*parts)]
        shuffler.shuffle(moved)
        with forbid_ambient():
            law(parts, moved)

    _run(law_alone, _three_parts(values), examples)
    if not taken:
        raise InvalidInput(
            "the reducer takes none of these values, or its view is no JSON value, so that nothing"
            " was checked"
        )


def check_prompt_is_pure(
    compose: Callable[[Input], Any],
    inputs: st.SearchStrategy[Input],
    *,
    examples: int = DEFAULT_EXAMPLES,
) -> None:
    """Check that composing gives equal bytes each time and looks at nothing but its argument.

    `compose` gives bytes, text, or something with `data`. An input that is a list or tuple is given
    in another order, too. Raises DeterminismError, AmbientAccessError.
    """

    def law(drawn: tuple[Input, Input, int]) -> None:
        first, between, turn = drawn
        before = repr(first)
        with forbid_ambient():
            data = _outcome(lambda: _bytes_of(compose(first)))
            _outcome(lambda: _bytes_of(compose(between)))
            again = _outcome(lambda: _bytes_of(compose(first)))
            turned = _outcome(lambda: _bytes_of(compose(_turned(first, turn))))
        _hold(1, "composing twice gives equal bytes", data, again)
        _hold(1, "another order of the contributions gives equal bytes", data, turned)
        _hold(1, "composing leaves its argument as it was", before, repr(first))

    _run(law, st.tuples(inputs, inputs, st.integers(0, 7)), examples)


def check_fingerprint_is_pure(
    compute: Callable[[FingerprintInput], Fingerprint] = compute_fingerprint,
    inputs: st.SearchStrategy[FingerprintInput] | None = None,
    *,
    examples: int = DEFAULT_EXAMPLES,
) -> None:
    """Check that a fingerprint follows from its input alone, and tells the modes apart.

    Raises DeterminismError, AmbientAccessError.
    """
    drawn_inputs = inputs if inputs is not None else fingerprint_inputs()

    def law(drawn: tuple[FingerprintInput, FingerprintInput]) -> None:
        first, between = drawn
        with forbid_ambient():
            made, _, again = compute(first), compute(between), compute(replace(first))
        _hold(2, "computing twice gives one fingerprint", _parts(made), _parts(again))
        keys = [replace(first, runtime_mode=mode) for mode in RuntimeMode]
        modes = {compute(key).composite for key in keys}
        _hold(2, "five modes give five composites", len(RuntimeMode), len(modes))

    _run(law, st.tuples(drawn_inputs, drawn_inputs), examples)


class _Seen:
    """Compares states by what nodes would read; two failures are equal."""

    def __init__(self, reducer: Reducer[Any], parts: Sequence[Sequence[Write]]) -> None:
        self._reducer = reducer
        # Made anew for each use, so that a join that changes its arguments shows in one law only.
        self.states = [partial(fold, reducer, part) for part in parts]
        self.has_writes = any(
            part and isinstance(self._read(state), bytes)
            for part, state in zip(parts, self.states, strict=True)
        )

    def same(self, law: str, left: Callable[[], Any], right: Callable[[], Any]) -> None:
        _hold(4, law, self._read(left), self._read(right))

    def leaves_alone(self, make_a: Callable[[], Any], make_b: Callable[[], Any]) -> None:
        """Reading a state, and joining it with another, must not change it."""
        try:
            a, b = make_a(), make_b()
        except BernsteinError:
            return  # no states
        before = self._read(lambda: a), self._read(lambda: b)
        _outcome(lambda: self._reducer.join(a, b))
        after = self._read(lambda: a), self._read(lambda: b)
        _hold(4, "join leaves its arguments as they were", before, after)

    def _read(self, make: Callable[[], Any]) -> object:
        try:
            return canonicalize(self._reducer.view(make()))
        except BernsteinError:
            return "an error"


def _three_parts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Three lists of writes, and what shuffles them; now and then two writes have one key."""
    keys = st.none() | st.builds(
        WriteKey, st.integers(0, 1), st.sampled_from(["writer-0", "writer-1"]), st.integers(0, 2)
    )

    def keyed(given: tuple[Any, Any, Any, random.Random]) -> Any:
        *lists, shuffler = given
        numbers = itertools.count(3)
        parts = [[_write(next(numbers), key, value) for key, value in part] for part in lists]
        return (*parts, shuffler)

    part = st.lists(st.tuples(keys, values), max_size=_PART_WRITES_MAX)
    return st.tuples(part, part, part, st.randoms(use_true_random=False)).map(keyed)


def _write(number: int, key: WriteKey | None, value: Any) -> Write:
    """With the key that was drawn, or one that no other write has."""
    return Write(key or WriteKey(number % 2, f"writer-{number % 3}", number), value)


def _one_by_one(reducer: Reducer[S], writes: Sequence[Write]) -> S:
    state = reducer.empty()
    for write in writes:
        state = reducer.join(state, reducer.lift(write))
    return state


def _turned(value: Any, by: int) -> Any:
    if type(value) not in (list, tuple) or not value:
        return value
    at = by % len(value)
    return type(value)([*value[at:], *value[:at]][::-1])


def _bytes_of(composed: Any) -> bytes:
    data = getattr(composed, "data", composed)
    return data.encode() if isinstance(data, str) else bytes(data)


def _parts(made: Fingerprint) -> tuple[str, tuple[tuple[str, str], ...]]:
    return made.composite, tuple(sorted(made.components.items()))


def _outcome(make: Callable[[], object]) -> object:
    """What a call gives, or the kind of error of ours that it ends with."""
    try:
        return make()
    except BernsteinError as error:
        if error.reason == "AMBIENT_ACCESS":
            raise
        return error.reason


def _hold(contract: int, law: str, left: object, right: object) -> None:
    if left != right:
        raise DeterminismError(
            f"contract {contract} is broken: {law} does not hold; {str(left)[:200]} on the left,"
            f" {str(right)[:200]} on the right",
            contract=contract,
            law=law,
        )


def _run(law: Callable[[Any], None], drawn: st.SearchStrategy[Any], examples: int) -> None:
    checked = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )(given(drawn)(law))
    checked()
