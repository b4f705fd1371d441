"""What goes along with every call, whoever makes it: the trace that it is part of."""

from collections.abc import Callable
from typing import Any

import grpc

from bernstein_runtime import trace


class _Details(grpc.ClientCallDetails):
    """Those of a call, with more metadata."""

    def __init__(
        self, details: grpc.ClientCallDetails, metadata: tuple[tuple[str, str | bytes], ...]
    ) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = (*(details.metadata or ()), *metadata)
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


def metadata() -> tuple[tuple[str, str | bytes], ...]:
    """Of a call that is made now, by this thread."""
    return ((trace.KEY, (trace.current() or trace.new_trace()).as_header()),)


class Outgoing(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Puts it on all calls of a channel."""

    def _unary(
        self,
        continuation: Callable[[grpc.ClientCallDetails, Any], Any],
        client_call_details: grpc.ClientCallDetails,
        request: Any,
    ) -> Any:
        return continuation(_Details(client_call_details, metadata()), request)

    def _stream(
        self,
        continuation: Callable[[grpc.ClientCallDetails, Any], Any],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return continuation(_Details(client_call_details, metadata()), request_iterator)

    intercept_unary_unary = _unary
    intercept_unary_stream = _unary
    intercept_stream_unary = _stream
    intercept_stream_stream = _stream
