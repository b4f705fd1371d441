"""One call of a service as a value: what is sent, and what the answer means. Who sends it, and how
long it waits for the answer, blocking or on an event loop, is another matter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from bernstein_runtime import limits

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Answer]):
    """`name` is the method's in its service."""

    name: str
    # Several where the method takes a stream.
    request: Message | tuple[Message, ...]
    read: Callable[[Any], Answer]
    # In seconds; None where it may take for ever.
    timeout: float | None = limits.CALL_TIMEOUT_SECONDS

    def sent(self) -> Message | Iterator[Message]:
        """As a stub takes it, anew each time."""
        return iter(self.request) if isinstance(self.request, tuple) else self.request
