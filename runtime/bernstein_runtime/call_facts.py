"""What the log says about a call: the ids that its request names and the trace that it is part of,
never a payload."""

from collections.abc import Iterator
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from bernstein_runtime import trace

NAMES: Final = frozenset({"agent_id", "origin", "request_id", "run_id", "session_id"})
# Longer than any id that is taken: what is longer is refused, and need not be seen whole.
CHARACTERS_MAX: Final = 128


class CallFacts:
    """Filled while the call is under way."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.said: dict[str, object] = {}
        headers = dict(context.invocation_metadata())
        header = headers.get(trace.KEY)
        self.trace = trace.trace_in(header) if isinstance(header, str) else None

    def of(self, request: Any) -> Any:
        """The same request, or stream of requests, once its ids were noted."""
        if isinstance(request, Message):
            self._note(request)
            return request
        return self._noted(request)

    def _noted(self, requests: Iterator[Message]) -> Iterator[Message]:
        """The first message of a stream says what it is about."""
        for number, request in enumerate(requests):
            if number == 0:
                self._note(request)
            yield request

    def _note(self, message: Message) -> None:
        for field, value in message.ListFields():
            if field.name in NAMES and isinstance(value, str):
                self.said[field.name] = value[:CHARACTERS_MAX]
            elif field.message_type is not None and isinstance(value, Message):
                self._note(value)
