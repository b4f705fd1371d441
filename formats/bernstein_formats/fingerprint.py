"""The fingerprint of a model call: what decides the answer, and nothing else, under one hash.

Rules: docs/formats/determinism.md, section 2. A pure function of its typed argument; who asks,
when and in which session has no place in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from hashlib import sha256
from math import isfinite
from types import MappingProxyType
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, ReplayKeySchemeMismatchError
from bernstein_formats.identity_fields import CALL_KINDS, refuse_identity
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.strict_json import canonicalize

SCHEME: Final = "v1"
TEMPERATURE_STEP: Final = Decimal("0.05")
# Digits for every double, and for a step of it.
_EXACT: Final = Context(prec=800)

# In the order in which a difference is told.
COMPONENTS: Final = (
    *("prompt", "tools", "family", "model", "provider", "call_class", "temperature", "seed"),
    *("max_tokens", "parameters", "mode", "version"),
)

_CALL_ID_NAMES: Final = frozenset({"tool_call_id", "tool_use_id"})
_BUCKET: Final = re.compile(r"(0|[1-9][0-9]*)\.[0-9][05]")


@dataclass(frozen=True, slots=True)
class FingerprintInput:
    """The key: everything that decides the answer. `None` and empty parts do not count.

    Raises InvalidInput for a field that is not of its type, which would make a key of its own.
    """

    family: str
    model: str
    call_class: str
    runtime_mode: RuntimeMode
    messages: tuple[Mapping[str, JsonValue], ...]
    version: str
    # Of `temperature_bucket`.
    temperature_bucket: str | None = None
    seed: int | None = None
    max_tokens: int | None = None
    tools: tuple[Mapping[str, JsonValue], ...] = ()
    provider: str | None = None
    # The request's other fields: stop, system, top_p, ...
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kinds in _FIELD_KINDS.items():
            value = getattr(self, name)
            if not any(type(value) is kind for kind in kinds):
                wanted = " or ".join(each.__name__ for each in kinds)
                raise InvalidInput(f"{name} must be {wanted}, exactly", field=name)
        for name in ("messages", "tools"):
            for each in getattr(self, name):
                if not any(type(each) is kind for kind in _OBJECTS):
                    raise InvalidInput(f"{name} must hold objects, as dict, only", field=name)
        if self.temperature_bucket is not None and not _BUCKET.fullmatch(self.temperature_bucket):
            raise InvalidInput(
                "temperature_bucket is no bucket: make one with temperature_bucket(temperature)",
                field="temperature_bucket",
            )


_OBJECTS: Final[tuple[type, ...]] = (dict, MappingProxyType)
_TEXT_OR_NONE: Final[tuple[type, ...]] = (str, type(None))
_INTEGER_OR_NONE: Final[tuple[type, ...]] = (int, type(None))
_FIELD_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("family", "model", "call_class", "version"), (str,)),
    **dict.fromkeys(("temperature_bucket", "provider"), _TEXT_OR_NONE),
    **dict.fromkeys(("seed", "max_tokens"), _INTEGER_OR_NONE),
    **dict.fromkeys(("messages", "tools"), (tuple,)),
    "runtime_mode": (RuntimeMode,),
    "parameters": _OBJECTS,
}


@dataclass(frozen=True, slots=True)
class FingerprintMetadata:
    """What belongs to a call without deciding its answer; never hashed."""

    session_id: str | None = None
    turn_id: str | None = None
    message_id: str | None = None
    user_id: str | None = None
    replay_of_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One digest a component, so that a difference has a name, and one over all of them."""

    components: Mapping[str, str]
    composite: str

    def differing(self, other: Mapping[str, str]) -> tuple[str, ...]:
        """The components in which another fingerprint differs, in fixed order."""
        return differing_components(self.components, other)


def compute_fingerprint(key: FingerprintInput) -> Fingerprint:
    """Raises CanonicalizationError, and IdentityFieldError for a member that names somebody."""
    given = {each.name: getattr(key, each.name) for each in fields(key)}
    canonicalize(given | {"runtime_mode": None})  # an enum member has no form
    for name in ("parameters", "messages", "tools"):  # safe to walk, since the above took them
        refuse_identity(given[name], f"/{name}")
    parts = {name: value for name, value in _parts(key).items() if value is not None}
    components = {name: sha256(canonicalize(value)).hexdigest() for name, value in parts.items()}
    return Fingerprint(components, composite_of(components))


def composite_of(components: Mapping[str, str]) -> str:
    """One hash over the components, with the scheme in front."""
    return f"{SCHEME}:{sha256(canonicalize(dict(components))).hexdigest()}"


def in_mode(key: FingerprintInput, mode: RuntimeMode) -> Fingerprint:
    """The fingerprint that the same call has in another mode, where its answer may be stored."""
    return compute_fingerprint(replace(key, runtime_mode=mode))


def version_of(package: str, agent: str) -> str:
    """The version that enters a fingerprint: the package's, and the agent's own if it has one."""
    return f"{package}/{agent}" if agent else package


def turn_composite(composites: Sequence[str]) -> str:
    """One fingerprint for a turn: its only call's, else one over those of its calls, in order."""
    if len(composites) == 1:
        return composites[0]
    return f"{SCHEME}:{sha256(canonicalize(list(composites))).hexdigest()}"


def same_composite(a: str, b: str) -> bool:
    """Compare two. Raises ReplayKeySchemeMismatchError where they were made by different rules."""
    schemes = [text.partition(":")[0] for text in (a, b)]
    if schemes[0] != schemes[1]:
        raise ReplayKeySchemeMismatchError(
            f"fingerprints of the schemes {schemes[0]!r} and {schemes[1]!r} cannot be compared:"
            " record the run again",
            recorded_scheme=schemes[0],
            own_scheme=schemes[1],
        )
    return a == b


def differing_components(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """Names in which two sets of components differ, in fixed order."""
    return tuple(name for name in COMPONENTS if a.get(name) != b.get(name))


def temperature_bucket(value: float) -> str:
    """The nearest multiple of 0.05, half away from zero, with two decimals: 0.72 is `0.70`.

    Raises InvalidInput for a negative temperature and for what is no number, or none that a
    double holds.
    """
    if type(value) not in (int, float) or not _is_finite(value) or value < 0:
        raise InvalidInput(
            f"a temperature must be a finite number of 0 or more, not this {type(value).__name__}",
            field="temperature",
        )
    exact = _EXACT.create_decimal(repr(abs(value)))  # -0.0 is 0
    steps = _EXACT.divide(exact, TEMPERATURE_STEP).to_integral_value(ROUND_HALF_UP)
    return f"{_EXACT.multiply(steps, TEMPERATURE_STEP):.2f}"


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every double
        return False


def shown_facts(key: FingerprintInput) -> dict[str, JsonValue]:
    """The components that are safe to be shown and stored in plain words: no text of a prompt."""
    hidden = ("prompt", "tools", "parameters")
    return {name: value for name, value in _parts(key).items() if name not in hidden}


def _parts(key: FingerprintInput) -> dict[str, JsonValue]:
    return {
        "prompt": _with_ordinals(key.messages),
        "tools": _listed(key.tools) or None,
        "family": key.family,
        "model": key.model,
        "provider": key.provider,
        "call_class": key.call_class,
        "temperature": key.temperature_bucket,
        "seed": key.seed,
        "max_tokens": key.max_tokens,
        "parameters": dict(key.parameters) or None,
        "mode": key.runtime_mode.value,
        "version": key.version,
    }


def _listed(values: Sequence[Mapping[str, JsonValue]]) -> list[JsonValue]:
    return [dict(each) for each in values]


def _with_ordinals(messages: Sequence[Mapping[str, JsonValue]]) -> JsonValue:
    """The messages with the provider's ids of tool calls numbered as they appear.

    The provider makes those ids up, so that they differ between two runs of the same turn.
    """
    numbers: dict[str, str] = {}
    for text in _call_ids(list(messages)):
        numbers.setdefault(text, f"call:{len(numbers)}")
    return _renamed(list(messages), numbers)


def _call_ids(value: object) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _call_ids(each)
    elif isinstance(value, Mapping):
        for name, each in sorted(value.items()):
            if _names_a_call(name, value) and isinstance(each, str):
                yield each
            else:
                yield from _call_ids(each)


def _renamed(value: object, numbers: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list | tuple):
        return [_renamed(each, numbers) for each in value]
    if isinstance(value, Mapping):
        return {
            name: numbers[each]
            if _names_a_call(name, value) and isinstance(each, str)
            else _renamed(each, numbers)
            for name, each in value.items()
        }
    return value  # type: ignore[return-value]  # canonicalize took it


def _names_a_call(name: str, owner: Mapping[str, object]) -> bool:
    """Whether this member is the id of a tool call: where one is made, or where one is answered."""
    return name in _CALL_ID_NAMES or (name == "id" and owner.get("type") in CALL_KINDS)
