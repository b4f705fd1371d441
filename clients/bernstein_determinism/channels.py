"""Contract 4, channel reducers commute and associate: writes side by side give one state.

Rules: docs/formats/determinism.md, section 8. A reducer joins two states. Joining lists end to end
does not commute, so every write has a key that says where it belongs whenever it arrives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import ChannelConflictError, InvalidInput
from bernstein_formats.strict_json import canonicalize

S = TypeVar("S")


@dataclass(frozen=True, slots=True, order=True)
class WriteKey:
    """Where a write belongs: the turn's step, the writer's stable name, its running number.

    Never a clock, and never the order of arrival.
    """

    step: int
    writer: str
    seq: int


@dataclass(frozen=True, slots=True)
class Write:
    """A value on its way to a channel."""

    key: WriteKey
    value: JsonValue


class Reducer(Protocol[S]):
    """How a channel's state comes from its writes. `check_reducer_laws` checks one."""

    def empty(self) -> S:
        """The state of a channel that nobody wrote to."""
        ...

    def lift(self, write: Write) -> S:
        """The state of a channel with this one write."""
        ...

    def join(self, a: S, b: S) -> S:
        """The state with the writes of both."""
        ...

    def view(self, state: S) -> JsonValue:
        """What nodes read."""
        ...


_Keyed: TypeAlias = Mapping[WriteKey, bytes]


class AppendReducer:
    """Every value, in the order of the keys."""

    def empty(self) -> _Keyed:
        return {}

    def lift(self, write: Write) -> _Keyed:
        return {write.key: canonicalize(write.value)}

    def join(self, a: _Keyed, b: _Keyed) -> _Keyed:
        """Raises ChannelConflictError where one key has two values."""
        for key in a.keys() & b.keys():
            if a[key] != b[key]:
                raise ChannelConflictError(
                    f"two values were written as number {key.seq} of {key.writer!r} in step"
                    f" {key.step}; give each writer a name of its own",
                    writer=key.writer,
                    step=key.step,
                )
        return {**a, **b}

    def view(self, state: _Keyed) -> JsonValue:
        return [parse_json(state[key]) for key in sorted(state)]


class UnionReducer:
    """Each different value once, in the order of their canonical bytes."""

    def empty(self) -> frozenset[bytes]:
        return frozenset()

    def lift(self, write: Write) -> frozenset[bytes]:
        return frozenset({canonicalize(write.value)})

    def join(self, a: frozenset[bytes], b: frozenset[bytes]) -> frozenset[bytes]:
        return a | b

    def view(self, state: frozenset[bytes]) -> JsonValue:
        return [parse_json(each) for each in sorted(state)]


@dataclass(frozen=True, slots=True, order=True)
class _Version:
    number: int
    data: bytes


_Messages: TypeAlias = Mapping[str, _Version]


class MessagesReducer:
    """Messages by id: `{"id", "version", "order", ...}`; the newest version of each stays.

    A message is taken back by a version with `"deleted": true`.
    """

    def empty(self) -> _Messages:
        return {}

    def lift(self, write: Write) -> _Messages:
        match write.value:
            case {"id": str() as name, "version": int() as number, "order": int() as order} if (
                type(number) is type(order) is int
            ):
                return {name: _Version(number, canonicalize(write.value))}
        raise InvalidInput(
            f"what {write.key.writer!r} wrote is no message: give id (text), version and order"
            " (whole numbers)",
            writer=write.key.writer,
        )

    def join(self, a: _Messages, b: _Messages) -> _Messages:
        newest = {name: max(a[name], b[name]) for name in a.keys() & b.keys()}
        return {**a, **b, **newest}

    def view(self, state: _Messages) -> JsonValue:
        messages = [parse_json(each.data) for each in state.values()]
        live = [
            each for each in messages if isinstance(each, dict) and each.get("deleted") is not True
        ]
        live.sort(key=_place)
        return [*live]


@dataclass(frozen=True, slots=True, order=True)
class _Last:
    key: WriteKey
    data: bytes


class LastWriteReducer:
    """The value with the greatest key; null before the first."""

    def empty(self) -> _Last | None:
        return None

    def lift(self, write: Write) -> _Last | None:
        return _Last(write.key, canonicalize(write.value))

    def join(self, a: _Last | None, b: _Last | None) -> _Last | None:
        if a is None or b is None:
            return a or b
        return max(a, b)

    def view(self, state: _Last | None) -> JsonValue:
        return parse_json(state.data) if state else None


append_reducer = AppendReducer()
union_reducer = UnionReducer()
messages_reducer = MessagesReducer()
last_write_reducer = LastWriteReducer()


def fold(reducer: Reducer[S], writes: Sequence[Write]) -> S:
    """The state after some writes; they are joined in pairs, which any reducer may be asked for."""
    states = [reducer.lift(each) for each in writes]
    while len(states) > 1:
        pairs = [reducer.join(a, b) for a, b in zip(states[::2], states[1::2], strict=False)]
        states = pairs + states[len(pairs) * 2 :]
    return states[0] if states else reducer.empty()


def _place(message: Mapping[str, JsonValue]) -> tuple[int, str]:
    order, name = message.get("order"), message.get("id")
    return (order if isinstance(order, int) else 0, str(name))
