"""Contract 1, composed prompts are deterministic: equal contributions and budget give equal bytes.

Rules: docs/formats/determinism.md, section 3.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, PromptBudgetError
from bernstein_formats.strict_json import canonical_copy

BUDGET_BUCKET: Final = 256
_JOINT: Final = "\n\n"
_FIELD_KINDS: Final = {"id": str, "order": int, "priority": int, "text": str}


class Eligibility(StrEnum):
    """Whether a text may depend on the session that it is composed for."""

    STATIC = "static"
    RUNTIME_AWARE = "runtime-aware"


@dataclass(frozen=True, slots=True)
class PromptContribution:
    """A part of a prompt: where it stands, and how much it matters when the budget is tight."""

    id: str
    # Ascending.
    order: int
    # The higher one is kept.
    priority: int
    text: str
    required: bool = False
    eligibility: Eligibility = Eligibility.STATIC

    def __post_init__(self) -> None:
        """Raises InvalidInput: only whole numbers and texts have one order, NaN has any."""
        for name, kind in _FIELD_KINDS.items():
            value = getattr(self, name)
            if type(value) is not kind:
                raise InvalidInput(
                    f"a contribution's {name} must be {kind.__name__}, not {type(value).__name__}",
                    field=name,
                )


@dataclass(frozen=True, slots=True)
class ComposedPrompt:
    """A prompt's bytes and how they came about; ids in the order of the text."""

    data: bytes
    sha256: str
    # Of the static contributions alone.
    static_sha256: str
    included: tuple[str, ...]
    dropped: tuple[str, ...]
    budget: int

    @property
    def text(self) -> str:
        return self.data.decode()


@dataclass(frozen=True, slots=True)
class StaticContext:
    """What a static contribution may be made from: configuration, frozen at the start."""

    config: Mapping[str, JsonValue]

    def __post_init__(self) -> None:
        """Raises CanonicalizationError for what is no plain data."""
        object.__setattr__(self, "config", _frozen(canonical_copy(self.config)))


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """What a runtime-aware contribution may be made from besides."""

    static: StaticContext
    turn_input: JsonValue = None
    channels: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StaticSection:
    """A contribution that is made from configuration alone; the argument holds nothing else."""

    id: str
    order: int
    priority: int
    make: Callable[[StaticContext], str]
    required: bool = False

    def contribution(self, context: RuntimeContext) -> PromptContribution:
        text = self.make(context.static)
        return PromptContribution(self.id, self.order, self.priority, text, self.required)


@dataclass(frozen=True, slots=True)
class RuntimeSection:
    """A contribution that may look at the turn and at the channels."""

    id: str
    order: int
    priority: int
    make: Callable[[RuntimeContext], str]
    required: bool = False

    def contribution(self, context: RuntimeContext) -> PromptContribution:
        return PromptContribution(
            self.id,
            self.order,
            self.priority,
            self.make(context),
            self.required,
            Eligibility.RUNTIME_AWARE,
        )


def _frozen(value: JsonValue) -> Any:
    """Unchangeable at every level: lists become tuples, objects read-only views."""
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(each) for name, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def rendered(
    sections: Sequence[StaticSection | RuntimeSection], context: RuntimeContext
) -> list[PromptContribution]:
    """The contributions that sections make in a context."""
    return [section.contribution(context) for section in sections]


def quantize_budget(tokens: int, *, bucket: int = BUDGET_BUCKET) -> int:
    """The budget that counts: the multiple of `bucket` at or below it. Raises InvalidInput."""
    are_whole = type(tokens) is int and type(bucket) is int
    if not are_whole or tokens < 0 or bucket < 1:
        raise InvalidInput(
            f"a budget of {tokens!s:.40} tokens in buckets of {bucket!s:.40}: give whole numbers,"
            " the one 0 or more, the other 1 or more",
            field="budget_tokens",
        )
    return tokens - tokens % bucket


def compose_budgeted_prompt(
    contributions: Iterable[PromptContribution],
    *,
    budget_tokens: int,
    measure: Callable[[str], int],
    bucket: int = BUDGET_BUCKET,
) -> ComposedPrompt:
    """Compose what fits; `measure` gives a text's tokens and must be pure.

    Required contributions are always kept, the others by priority while they fit. Raises
    InvalidInput for an id that is there twice, PromptBudgetError where the required ones alone do
    not fit.
    """
    given = _unique(contributions)
    budget = quantize_budget(budget_tokens, bucket=bucket)
    kept = _kept(given, budget, measure)
    placed = sorted(given.values(), key=lambda each: (each.order, -each.priority, each.id))
    included = [each for each in placed if each.id in kept]
    data = _joined(included)
    static = [each for each in included if each.eligibility is Eligibility.STATIC]
    return ComposedPrompt(
        data=data,
        sha256=sha256(data).hexdigest(),
        static_sha256=sha256(_joined(static)).hexdigest(),
        included=tuple(each.id for each in included),
        dropped=tuple(each.id for each in placed if each.id not in kept),
        budget=budget,
    )


def _unique(contributions: Iterable[PromptContribution]) -> dict[str, PromptContribution]:
    given: dict[str, PromptContribution] = {}
    for each in contributions:
        if each.id in given:
            raise InvalidInput(f"two contributions have the id {each.id!r}; rename one", id=each.id)
        given[each.id] = each
    return given


def _kept(
    given: Mapping[str, PromptContribution], budget: int, measure: Callable[[str], int]
) -> set[str]:
    kept = {each.id for each in given.values() if each.required}
    left = budget - sum(_tokens(measure, given[name]) for name in kept)
    if left < 0:
        raise PromptBudgetError(
            f"the required contributions need {budget - left} tokens of {budget}: shorten them, or"
            " raise the budget",
            needed=budget - left,
            budget=budget,
        )
    for each in sorted(given.values(), key=lambda each: (-each.priority, each.order, each.id)):
        size = _tokens(measure, each)
        if each.id not in kept and size <= left:
            kept.add(each.id)
            left -= size
    return kept


def _tokens(measure: Callable[[str], int], part: PromptContribution) -> int:
    size = measure(part.text)
    if type(size) is not int or size < 0:
        raise InvalidInput(
            f"measure must give a whole number of 0 or more for contribution {part.id!r}, not this"
            f" {type(size).__name__}",
            id=part.id,
        )
    return size


def _joined(parts: Sequence[PromptContribution]) -> bytes:
    try:
        return _JOINT.join(each.text for each in parts).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "a contribution holds half a surrogate pair; cut text between whole characters only",
            field="text",
        ) from error
