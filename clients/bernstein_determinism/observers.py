"""Contract 3, stream observers are synchronous: a verdict on each chunk, at once, and nothing else.

Rules: docs/formats/determinism.md, section 7. Slow work belongs into a node after the turn's call,
which finds what an observer emitted on a channel.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from bernstein_determinism.channels import Write, WriteKey
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import AsyncObserverError, ObserverContractError
from bernstein_formats.strict_json import canonical_copy


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer; `index` counts from 0 within one call."""

    turn_id: str
    index: int
    text: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver no further chunk."""

    reason: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Put a value on a channel, for the nodes to come."""

    channel: str
    payload: JsonValue


CONTINUE = Continue()
Verdict: TypeAlias = Continue | Stop | Emit | tuple[Continue | Stop | Emit, ...]


class StreamObserver(Protocol):
    """Looks at chunks. State that it keeps must follow from the chunks alone."""

    name: str

    def on_chunk(self, chunk: Chunk) -> Verdict: ...


# Made anew for each call, so that nothing is carried over from another one.
ObserverFactory: TypeAlias = Callable[[], StreamObserver]


@dataclass(frozen=True, slots=True)
class Observed:
    """What a stream's observers made of it."""

    # What got through: all chunks up to the one at which somebody stopped.
    delivered: tuple[str, ...]
    # One line a verdict that is not "continue": chunk, observer, kind, value.
    verdicts: tuple[tuple[int, str, str, JsonValue], ...]
    stop_reason: str | None
    envelopes: tuple[tuple[str, Write], ...]


class Observers:
    """Observers in the order of registration, which is the order of their say."""

    def __init__(self, factories: Sequence[ObserverFactory] = ()) -> None:
        self._factories: dict[str, ObserverFactory] = {}
        for each in factories:
            self.register(each)

    def register(self, factory: ObserverFactory) -> None:
        """Take an observer. Raises AsyncObserverError, ObserverContractError for a name taken."""
        made = factory()
        refuse_async(made.on_chunk, made.name)
        if made.name in self._factories:
            raise ObserverContractError(
                f"two observers have the name {made.name!r}; rename one", observer=made.name
            )
        self._factories[made.name] = factory

    def watch(self, chunks: Sequence[Chunk], step: int, writer: str) -> Observed:
        """Have fresh observers look at the chunks of one call; `writer` names who called."""
        observers = [make() for make in self._factories.values()]
        delivered: list[str] = []
        verdicts: list[tuple[int, str, str, JsonValue]] = []
        envelopes: list[tuple[str, Write]] = []
        for chunk in chunks:
            delivered.append(chunk.text)
            stop: str | None = None
            for observer in observers:
                given = _verdicts(observer, chunk)
                verdicts += [_told(chunk, observer, each) for each in given if each != CONTINUE]
                envelopes += _envelopes(chunk, observer, given, step, writer)
                stops = [each.reason for each in given if isinstance(each, Stop)]
                stop = stop if stop is not None or not stops else stops[0]
            if stop is not None:
                return Observed(tuple(delivered), tuple(verdicts), stop, tuple(envelopes))
        return Observed(tuple(delivered), tuple(verdicts), None, tuple(envelopes))


def refuse_async(function: object, name: str) -> None:
    """Raise AsyncObserverError for anything whose call would give an awaitable."""
    seen = function
    while isinstance(seen, partial):
        seen = seen.func
    called = getattr(type(seen), "__call__", None)  # noqa: B004 - the method, not whether there is one
    for each in (seen, inspect.unwrap(seen) if callable(seen) else seen, called):
        if isinstance(each, partial):
            refuse_async(each, name)
        elif inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise _is_async(name)


def _verdicts(observer: StreamObserver, chunk: Chunk) -> tuple[Continue | Stop | Emit, ...]:
    answer: object = observer.on_chunk(chunk)
    if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
        close = getattr(answer, "close", None)
        if close is not None:
            close()
        raise _is_async(observer.name)
    given = answer if isinstance(answer, tuple) else (answer,)
    verdicts = tuple(_own(each) for each in given if isinstance(each, Continue | Stop | Emit))
    if len(verdicts) != len(given):
        raise ObserverContractError(
            f"observer {observer.name!r} answered chunk {chunk.index} with a"
            f" {type(answer).__name__}: give CONTINUE, Stop, Emit or a tuple of these",
            observer=observer.name,
            chunk=chunk.index,
        )
    return verdicts


def _own(verdict: Continue | Stop | Emit) -> Continue | Stop | Emit:
    """As it is now: the observer may go on with what it emitted."""
    if isinstance(verdict, Emit):
        return Emit(verdict.channel, canonical_copy(verdict.payload))
    return verdict


def _told(
    chunk: Chunk, observer: StreamObserver, verdict: Continue | Stop | Emit
) -> tuple[int, str, str, JsonValue]:
    if isinstance(verdict, Emit):
        return chunk.index, observer.name, f"emit {verdict.channel}", verdict.payload
    reason = verdict.reason if isinstance(verdict, Stop) else ""
    return chunk.index, observer.name, "stop", reason


def _envelopes(
    chunk: Chunk,
    observer: StreamObserver,
    verdicts: Sequence[Continue | Stop | Emit],
    step: int,
    writer: str,
) -> list[tuple[str, Write]]:
    """With keys in the order of chunk, observer and number."""
    author = f"{writer}:{chunk.index:06}:{observer.name}"
    emits = [each for each in verdicts if isinstance(each, Emit)]
    return [
        (each.channel, Write(WriteKey(step, author, number), each.payload))
        for number, each in enumerate(emits)
    ]


def _is_async(name: str) -> AsyncObserverError:
    return AsyncObserverError(
        f"observer {name!r} is asynchronous: its work would be done at another point of the stream"
        " each time; emit on a channel and do the work in a node of the next step",
        observer=name,
    )
