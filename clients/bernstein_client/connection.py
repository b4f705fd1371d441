"""The services of one project folder, found or started, each over one channel."""

import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from bernstein_client.journal import JournalClient
from bernstein_client.recorder import RecorderClient
from bernstein_client.rederiver import RederiverClient
from bernstein_runtime import limits
from bernstein_runtime.channel import call, open_channel
from bernstein_runtime.places import places_for
from bernstein_runtime.status import error_from
from bernstein_runtime.supervisor import Supervisor

Answer = TypeVar("Answer")


class Connection:
    """One service: its channel, and how calls to it are made."""

    def __init__(self, name: str, supervisor: Supervisor) -> None:
        self._revive: Callable[[], None] = lambda: supervisor.ensure(name)
        self._revive()
        self.channel = open_channel(supervisor.places.socket(name))
        self._service = f"/bernstein_api.{name}.v1.{name.capitalize()}Service"
        # Unique among all clients of all hosts, so that a retry is never taken for another's call.
        self._client_id = secrets.token_hex(8)
        self._numbers = count()

    def request_id(self) -> str:
        """A new id for a call that changes something."""
        return f"{self._client_id}-{next(self._numbers)}"

    def call(
        self,
        method: Callable[..., Answer],
        request: object,
        name: str,
        timeout: float = limits.CALL_TIMEOUT_SECONDS,
    ) -> Answer:
        """One answer. Raises our own errors; tried again where the contract says it is safe."""
        return call(
            f"{self._service}/{name}",
            lambda: method(request, timeout=timeout),
            revive=self._revive,
        )

    def stream(self, method: Callable[..., Any], request: object) -> Iterator[Any]:
        """The answers of a server stream, its failure as one of our errors."""
        try:
            yield from method(request, timeout=limits.LONG_CALL_TIMEOUT_SECONDS)
        except grpc.RpcError as failure:
            raise error_from(failure) from None


class Services:
    """Everything of one project. Safe for any number of threads; close it, or use `with`."""

    def __init__(self, sdd_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self.places = places_for(sdd_dir, environ)
        self.supervisor = Supervisor(self.places, environ)
        self._connections: list[Connection] = []
        self._lock = threading.Lock()

    @cached_property
    def journal(self) -> JournalClient:
        return JournalClient(self._connect("journal"))

    @cached_property
    def recorder(self) -> RecorderClient:
        return RecorderClient(self._connect("recorder"))

    @cached_property
    def rederiver(self) -> RederiverClient:
        return RederiverClient(self._connect("rederiver"))

    def close(self) -> None:
        """Let go of the channels; the services go on."""
        with self._lock:
            for connection in self._connections:
                connection.channel.close()
            self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, name: str) -> Connection:
        connection = Connection(name, self.supervisor)
        with self._lock:
            self._connections.append(connection)
        return connection
