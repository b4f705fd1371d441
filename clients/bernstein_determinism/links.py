"""Compares two turns link by link, in the order of the chain: the first difference has a name.

Rules: docs/formats/determinism.md, section 10.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bernstein_determinism.failures import Failure
from bernstein_determinism.symptoms import SYMPTOMS, Kind
from bernstein_determinism.turn_record import Action, AskRecord, StepRecord, ToolRecord, TurnRecord
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ReplayDivergenceError
from bernstein_formats.fingerprint import differing_components, same_composite
from bernstein_formats.strict_json import canonicalize

# Components that somebody chose; when they differ, another call was asked for.
_SETTINGS: Final = frozenset(
    {"family", "model", "provider", "call_class", "temperature", "seed", "max_tokens", "version"}
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two turns part; `a` and `b` are digests or names, never a prompt's text."""

    kind: Kind
    place: str
    fields: tuple[str, ...]
    a: JsonValue
    b: JsonValue

    @property
    def contract(self) -> int | None:
        return SYMPTOMS[self.kind].contract

    @property
    def reason_code(self) -> str:
        return SYMPTOMS[self.kind].reason_code

    def text(self) -> str:
        fields = f" in {', '.join(self.fields)}" if self.fields else ""
        return f"{self.kind} at {self.place}{fields}: {SYMPTOMS[self.kind].seen}"

    def error(self, turn: TurnRecord) -> ReplayDivergenceError:
        """The error that ends a replay here; `a` is the recorded side."""
        return ReplayDivergenceError(
            f"{self.text()}; recorded {_short(self.a)}, got {_short(self.b)}. Likely cause:"
            f" {SYMPTOMS[self.kind].cause}. Mend it, or record the turn again",
            kind=self.kind,
            contract=self.contract,
            turn_id=turn.turn_id,
            replay_of_event_id=turn.record_id,
            mode="headless-replay",
            place=self.place,
            expected_key=_short(self.a),
            got_key=_short(self.b),
            differing_fields=", ".join(self.fields) or None,
            cause=SYMPTOMS[self.kind].cause,
        )


def compare_turns(a: TurnRecord, b: TurnRecord) -> Difference | None:
    """The first difference of two turns; who, when and in which mode do not count."""
    place = f"turn {a.turn_id}"
    if canonicalize(a.input) != canonicalize(b.input) or a.turn_id != b.turn_id:
        return Difference(Kind.INPUT, place, (), a.turn_id, b.turn_id)
    if a.version != b.version:
        return Difference(Kind.VERSION, place, ("version",), a.version, b.version)
    for number, (step_a, step_b) in enumerate(zip(a.steps, b.steps, strict=False)):
        found = compare_steps(step_a, step_b, f"{place}, step {number}")
        if found is not None:
            return found
    if len(a.steps) != len(b.steps):
        return Difference(Kind.ACTIONS, place, ("steps",), len(a.steps), len(b.steps))
    return _different_digests(Kind.CHANNEL, place, a.views, b.views)


def compare_steps(a: StepRecord, b: StepRecord, place: str) -> Difference | None:
    """The first difference of two steps: what nodes did, what they wrote, what came of it."""
    if sorted(a.nodes) != sorted(b.nodes):
        names = [", ".join(sorted(each.nodes)) for each in (a, b)]
        return Difference(Kind.ACTIONS, place, ("nodes",), *names)
    for name in sorted(a.nodes):
        found = _compare_nodes(a.nodes[name], b.nodes[name], f"{place}, node {name}")
        if found is not None:
            return found
    return compare_state(a, b, place)


def compare_state(a: StepRecord, b: StepRecord, place: str) -> Difference | None:
    """The first difference in what was written, then in what the reducers made of it."""
    return _different_digests(Kind.WRITES, place, a.writes, b.writes) or _different_digests(
        Kind.CHANNEL, place, a.channels, b.channels
    )


def compare_actions(a: Action, b: Action, place: str) -> Difference | None:
    """The first difference of two actions of one node."""
    if isinstance(a, AskRecord) and isinstance(b, AskRecord):
        return (
            compare_prompts(a, b.prompt_sha256, b.static_sha256, place)
            or compare_fingerprints(a, b.composite, b.components, place)
            or _compare_failures(Kind.CHUNKS, a.failure, b.failure, place)
            or compare_chunks(a, b.answer_sha256, b.chunk_lengths, place)
            or compare_verdicts(a.verdicts, b.verdicts, place)
        )
    if isinstance(a, ToolRecord) and isinstance(b, ToolRecord):
        return compare_tools(a, b, place)
    return Difference(Kind.ACTIONS, place, (), _name(a), _name(b))


def compare_prompts(a: AskRecord, sha256: str, static_sha256: str, place: str) -> Difference | None:
    """Contract 1; says so where it is the static part that differs, which nothing excuses."""
    if (a.prompt_sha256, a.static_sha256) == (sha256, static_sha256):
        return None
    fields = ("prompt",) if a.static_sha256 == static_sha256 else ("prompt", "static part")
    return Difference(Kind.PROMPT, place, fields, a.prompt_sha256, sha256)


def compare_fingerprints(
    a: AskRecord, composite: str, components: Mapping[str, str], place: str
) -> Difference | None:
    """Contract 2; the mode is in the fingerprint and is not what is asked here. Raises
    ReplayKeySchemeMismatchError."""
    if same_composite(a.composite, composite):
        return None
    names = tuple(each for each in differing_components(a.components, components) if each != "mode")
    if not names:
        return None
    return Difference(_kind_of(names), place, names, a.composite, composite)


def _kind_of(names: tuple[str, ...]) -> Kind:
    if names == ("version",):
        return Kind.VERSION
    return Kind.SETTINGS if _SETTINGS.issuperset(names) else Kind.FINGERPRINT


def compare_chunks(
    a: AskRecord, answer_sha256: str, lengths: Sequence[int], place: str
) -> Difference | None:
    """What no contract promises: that a provider answers twice alike."""
    if a.answer_sha256 != answer_sha256:
        return Difference(Kind.CHUNKS, place, ("answer",), a.answer_sha256, answer_sha256)
    if tuple(lengths) != a.chunk_lengths:
        return Difference(Kind.CHUNKS, place, ("chunks",), [*a.chunk_lengths], [*lengths])
    return None


def compare_verdicts(
    a: Sequence[tuple[int, str, str, JsonValue]],
    b: Sequence[tuple[int, str, str, JsonValue]],
    place: str,
) -> Difference | None:
    """Contract 3."""
    for was, now in zip(a, b, strict=False):
        if canonicalize(was) != canonicalize(now):
            where = f"{place}, chunk {was[0]}"
            return Difference(Kind.VERDICTS, where, (was[1],), [*was], [*now])
    if len(a) != len(b):
        return Difference(Kind.VERDICTS, place, ("number of verdicts",), len(a), len(b))
    return None


def compare_tools(a: ToolRecord, b: ToolRecord, place: str) -> Difference | None:
    """Name, arguments, result or failure."""
    if a.name != b.name:
        return Difference(Kind.ACTIONS, place, ("tool",), a.name, b.name)
    if a.arguments_sha256 != b.arguments_sha256:
        digests = (a.arguments_sha256, b.arguments_sha256)
        return Difference(Kind.TOOL, place, (a.name, "arguments"), *digests)
    if canonicalize(a.result) != canonicalize(b.result):
        return Difference(Kind.TOOL, place, (a.name, "result"), a.result, b.result)
    return _compare_failures(Kind.TOOL, a.failure, b.failure, place)


def _compare_failures(
    kind: Kind, a: Failure | None, b: Failure | None, place: str
) -> Difference | None:
    if a == b:
        return None
    return Difference(kind, place, ("failure",), *(each.kind if each else None for each in (a, b)))


def _compare_nodes(a: Sequence[Action], b: Sequence[Action], place: str) -> Difference | None:
    for number, (was, now) in enumerate(zip(a, b, strict=False)):
        found = compare_actions(was, now, f"{place}, action {number}")
        if found is not None:
            return found
    if len(a) != len(b):
        return Difference(Kind.ACTIONS, place, ("number of actions",), len(a), len(b))
    return None


def _different_digests(
    kind: Kind, place: str, a: Mapping[str, JsonValue], b: Mapping[str, JsonValue]
) -> Difference | None:
    names = tuple(_differing_names(a, b))
    if not names:
        return None
    return Difference(kind, place, names, a.get(names[0]), b.get(names[0]))


def _differing_names(a: Mapping[str, JsonValue], b: Mapping[str, JsonValue]) -> Iterator[str]:
    for name in sorted({*a, *b}):
        if canonicalize([a.get(name), name in a]) != canonicalize([b.get(name), name in b]):
            yield name


def _name(action: Action) -> str:
    return f"tool {action.name}" if isinstance(action, ToolRecord) else "ask"


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
