"""Streams that callers send: one that breaks off is never taken for one that ended."""

from collections.abc import Iterator
from typing import TypeVar

import grpc

from bernstein_formats.errors import Unavailable

Part = TypeVar("Part")


def parts_of(request_iterator: Iterator[Part]) -> Iterator[Part]:
    """The messages of a stream; Unavailable if it ends because its sender went away."""
    try:
        yield from request_iterator
    except grpc.RpcError as error:
        raise Unavailable("the caller went away while it sent rows") from error


def check_still_there(context: grpc.ServicerContext) -> None:
    """Raise Unavailable: gRPC may show a broken stream as one that ended."""
    if not context.is_active():
        raise Unavailable("the caller went away before its rows were answered")
