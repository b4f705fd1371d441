"""The way to a service: target, channel, errors as our own classes, safe retries.

What may be retried is said by the .proto alone: `idempotency_level` of the method. A retry after
UNAVAILABLE first asks for the service to be running again.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from tenacity import (
    AsyncRetrying,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential_jitter,
)

from bernstein_formats.errors import BernsteinError, QueueFull, Unavailable
from bernstein_runtime import limits
from bernstein_runtime.outgoing import Outgoing
from bernstein_runtime.status import error_from
from bernstein_runtime.tls import Identity

Answer = TypeVar("Answer")
OPTIONS = [
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
# While a call waits, the other host has to show that it lives.
REMOTE_OPTIONS = [
    *OPTIONS,
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.http2.max_pings_without_data", 0),
]
# A service that was killed is back within this time, on a busy machine too.
RETRY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a service is, and as whom it is asked; channels connect at their first call."""

    address: str
    identity: Identity | None = None

    def open(self) -> grpc.Channel:
        options = self._options()
        if self.identity is None:
            opened = grpc.insecure_channel(self.address, options=options)
        else:
            credentials = self.identity.for_channel()
            opened = grpc.secure_channel(self.address, credentials, options=options)
        return grpc.intercept_channel(opened, Outgoing())

    def open_async(self) -> grpc.aio.Channel:
        """For the event loop that runs."""
        if self.identity is None:
            return grpc.aio.insecure_channel(self.address, options=self._options())
        return grpc.aio.secure_channel(
            self.address, self.identity.for_channel(), options=self._options()
        )

    def _options(self) -> list[tuple[str, int]]:
        return OPTIONS if self.address.startswith("unix:") else REMOTE_OPTIONS


def socket_target(socket: Path) -> Target:
    """A Unix socket."""
    return Target(f"unix:{socket}")


def open_channel(socket: Path) -> grpc.Channel:
    """A channel to a Unix socket."""
    return socket_target(socket).open()


@lru_cache
def is_idempotent(method: str) -> bool:
    """Whether the .proto says that `/package.Service/Method` may be sent twice."""
    service, name = method.strip("/").split("/")
    described = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(name)
    options = described.GetOptions()
    return bool(options.idempotency_level != descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN)


class _GoneForGood(Unavailable):
    """The service refuses to start again.

    Not the refusal itself: whoever reads that one would believe that the call was refused, while an
    earlier attempt may have been carried out.
    """


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Unavailable | QueueFull) and not isinstance(error, _GoneForGood)


@contextmanager
def _gone_for_good() -> Iterator[None]:
    try:
        yield
    except Unavailable:
        raise
    except BernsteinError as error:
        gone = _GoneForGood(f"the service went away while it was asked; {error.message}")
        gone.metadata.update(error.metadata)
        raise gone from error


def call(
    method: str,
    send: Callable[[], Answer],
    *,
    revive: Callable[[], object] = lambda: None,
    who: Callable[[], str] = lambda: "the service",
) -> Answer:
    """The answer of `send`, its failures as our errors, tried again where that is safe."""
    is_busy = False

    def attempt() -> Answer:
        nonlocal is_busy
        try:
            return send()
        except grpc.RpcError as failure:
            error = error_from(failure, who())
            is_busy = isinstance(error, QueueFull)
            raise error from None

    if not is_idempotent(method):
        return attempt()
    for each in Retrying(**_patience()):
        with each:
            # Part of the attempt: that it cannot be revived yet is a reason to try again.
            if each.retry_state.attempt_number > 1 and not is_busy:
                with _gone_for_good():
                    revive()
            return attempt()
    raise AssertionError("the last attempt raises or returns")


async def call_async(
    method: str, send: Callable[[], Awaitable[Answer]], *, revive: Callable[[], Awaitable[object]]
) -> Answer:
    """The same for an event loop."""
    is_busy = False

    async def attempt() -> Answer:
        nonlocal is_busy
        try:
            return await send()
        except grpc.RpcError as failure:
            error = error_from(failure)
            is_busy = isinstance(error, QueueFull)
            raise error from None

    if not is_idempotent(method):
        return await attempt()
    async for each in AsyncRetrying(**_patience()):
        with each:
            if each.retry_state.attempt_number > 1 and not is_busy:
                with _gone_for_good():
                    await revive()
            return await attempt()
    raise AssertionError("the last attempt raises or returns")


def _patience() -> dict[str, Any]:
    return {
        "retry": retry_if_exception(_may_pass),
        "stop": stop_after_delay(RETRY_SECONDS),
        "wait": wait_exponential_jitter(multiplier=0.05, max=1.0),
        "reraise": True,
    }
