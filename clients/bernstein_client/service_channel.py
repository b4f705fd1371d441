"""One service: its channel, and how calls to it are made."""

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import grpc

from bernstein_client.rpc import Answer as Read
from bernstein_client.rpc import Rpc
from bernstein_formats.errors import Unavailable
from bernstein_runtime import forked, limits
from bernstein_runtime.channel import call
from bernstein_runtime.connector import Connector
from bernstein_runtime.status import error_from

Answer = TypeVar("Answer")


class ServiceChannel:
    """Opened once the service runs. Safe for any number of threads."""

    def __init__(self, name: str, connector: Connector) -> None:
        self._revive: Callable[[], None] = lambda: connector.ensure(name)
        self._who: Callable[[], str] = lambda: connector.who(name)
        self._revive()
        self.channel = connector.open(name)
        self._service = f"/bernstein_api.{name}.v1.{name.capitalize()}Service"
        self._begin_ids()
        forked.renew_after_fork(self)

    def after_fork(self) -> None:
        """A child's calls are its own: with its parent's ids they would be taken for retries."""
        self._begin_ids()

    def _begin_ids(self) -> None:
        # Unique among all clients of all hosts, so that a retry is never taken for another's call.
        self._client_id = secrets.token_hex(8)
        self._numbers = count()

    def revive(self) -> None:
        """Have the service running again. Raises Unavailable."""
        self._revive()

    def request_id(self) -> str:
        """A new id for a call that changes something."""
        return f"{self._client_id}-{next(self._numbers)}"

    def call(
        self,
        method: Callable[..., Answer],
        request: object,
        name: str,
        timeout: float | None = limits.CALL_TIMEOUT_SECONDS,
    ) -> Answer:
        """One answer. Raises our own errors; tried again where the contract says it is safe."""
        return call(
            f"{self._service}/{name}",
            lambda: method(request, timeout=timeout),
            revive=self._revive,
            who=self._who,
        )

    def answer(self, stub: object, rpc: Rpc[Read]) -> Read:
        """What a call means. Raises like `call`."""
        method = getattr(stub, rpc.name)
        answer = call(
            f"{self._service}/{rpc.name}",
            lambda: method(rpc.sent(), timeout=rpc.timeout),
            revive=self._revive,
        )
        return rpc.read(answer)

    def stream(
        self,
        method: Callable[..., Any],
        request: object,
        timeout: float | None = limits.LONG_CALL_TIMEOUT_SECONDS,
    ) -> Iterator[Any]:
        """The answers of a server stream, its failure as one of our errors.

        Such calls only read, or may be sent twice: one without any answer is sent once more.
        """
        has_answer = False
        for is_last in (False, True):
            try:
                for answer in method(request, timeout=timeout):
                    has_answer = True
                    yield answer
            except grpc.RpcError as failure:
                error = error_from(failure, self._who())
                if is_last or has_answer or not isinstance(error, Unavailable):
                    raise error from None
            else:
                return
            # A fleet's other host may answer; or it is said which one does not, and why.
            self._revive()
