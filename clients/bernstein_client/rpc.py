"""One call of a service as a value: what is sent, and what the answer means. Who sends it, and how
long it waits for the answer, blocking or on an event loop, is another matter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from bernstein_runtime import limits

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Answer]):
    """`name` is the method's in its service."""

    name: str
    request: Message
    read: Callable[[Any], Answer]
    # In seconds; None where it may take for ever.
    timeout: float | None = limits.CALL_TIMEOUT_SECONDS
