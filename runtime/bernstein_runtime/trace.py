"""Which request this is part of: one id that goes with every call, from service to service, so that
the log lines of all of them can be found together.

On the wire it is W3C Trace Context's `traceparent` (https://www.w3.org/TR/trace-context/). It names
a request, no right: whoever calls may write any id there.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

KEY: Final = "traceparent"
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


class _Process:
    """A command is one request, whichever of its threads calls."""

    trace: Trace | None = None


def new_trace() -> Trace:
    """A request that begins here."""
    return Trace(secrets.token_hex(16), secrets.token_hex(8))


def trace_in(header: str) -> Trace | None:
    """The request that a caller names; None for anything that is no such name."""
    found = _FORM.fullmatch(header)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Trace(found[1], found[2])


def current() -> Trace | None:
    """The request that this thread works for, if it works for one."""
    return _current.get() or _Process.trace


def of_process(trace: Trace | None) -> None:
    """From now on what no other request asked for is part of this one."""
    _Process.trace = trace


@contextmanager
def within(trace: Trace) -> Iterator[None]:
    """Work for a request. Streams may be closed in another context than they began in."""
    before = _current.get()
    _current.set(trace)
    try:
        yield
    finally:
        _current.set(before)
