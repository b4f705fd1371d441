"""Which request this is part of: one id that goes with every call, from service to service, so that
the log lines of all of them can be found together, and its spans where `[tracing]` is set.

On the wire it is W3C Trace Context's `traceparent` (https://www.w3.org/TR/trace-context/). It names
a request, no right: whoever calls may write any id there.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal, Protocol

KEY: Final = "traceparent"
Kind = Literal["internal", "server", "client"]
_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_current: ContextVar["Trace | None"] = ContextVar("trace", default=None)


@dataclass(frozen=True, slots=True)
class Trace:
    """A request, and the part of it that is under way here."""

    trace_id: str
    span_id: str

    def as_header(self) -> str:
        """What a call carries."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class Span(Protocol):
    """A part of a request that is told to a collector."""

    trace: Trace

    def say(self, facts: Mapping[str, object]) -> None:
        """What is known at its end; `reason` is why it failed."""
        ...


class Spans(Protocol):
    """Where spans go; see `bernstein_runtime.tracing`."""

    def span(self, name: str, kind: Kind, parent: Trace | None) -> AbstractContextManager[Span]: ...


class _Process:
    """What holds for all threads."""

    # A command is one request, whichever of its threads calls.
    trace: Trace | None = None
    # Its name, until it has a span.
    command: str = ""
    spans: Spans | None = None


def new_trace() -> Trace:
    """A request that begins here."""
    return Trace(os.urandom(16).hex(), os.urandom(8).hex())


def trace_in(header: str) -> Trace | None:
    """The request that a caller names; None for anything that is no such name."""
    found = _FORM.fullmatch(header)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Trace(found[1], found[2])


def current() -> Trace | None:
    """The request that this thread works for, if it works for one."""
    return _current.get() or _Process.trace or _of_program()


def of_command(name: str) -> None:
    """From now on this process is one request."""
    _Process.trace, _Process.command = new_trace(), name


@contextmanager
def command_span() -> Iterator[None]:
    """The command as the span that all others are parts of, once, and where spans are told."""
    name, _Process.command = _Process.command, ""
    if not name or _Process.spans is None:
        yield
        return
    with _Process.spans.span(name, "internal", None) as made:
        _Process.trace = made.trace
        yield


def is_command() -> bool:
    """Whether this process is a command that has no span yet."""
    return bool(_Process.command)


def tell_spans(spans: Spans | None) -> None:
    """Where spans go from now on; None: nowhere."""
    _Process.spans = spans


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """Work for a request. Streams may be closed in another context than they began in."""
    before = _current.get()
    _current.set(trace)
    try:
        yield
    finally:
        _current.set(before)


@contextmanager
def serving(caller: Trace | None, method: str, said: Mapping[str, object]) -> Iterator[None]:
    """Answer a call that is part of a caller's request; `said` is complete at its end."""
    if _Process.spans is None:
        with within(caller or new_trace()):
            yield
        return
    with _Process.spans.span(method, "server", caller) as span, within(span.trace):
        try:
            yield
        finally:
            span.say(said)


def span(name: str, kind: Kind = "internal", **facts: object) -> AbstractContextManager[None]:
    """A part of the current request that is worth seeing; nothing outside of one."""
    if _Process.spans is None or (parent := current()) is None:
        return nullcontext()
    return _told(_Process.spans.span(name, kind, parent), facts)


@contextmanager
def _told(span: AbstractContextManager[Span], facts: Mapping[str, object]) -> Iterator[None]:
    with span as made, within(made.trace):
        made.say(facts)
        yield


def _of_program(loaded: Mapping[str, object] = sys.modules) -> Trace | None:
    """The request of the program that uses us, where it follows its own by OpenTelemetry."""
    api = loaded.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()  # type: ignore[attr-defined]  # a module
    if not context.is_valid:
        return None
    return Trace(f"{context.trace_id:032x}", f"{context.span_id:016x}")
