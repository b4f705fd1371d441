"""The services of a project for an event loop: one channel each, calls tried again where the
contract says that it is safe, hosts of a fleet left when they die."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import grpc

from bernstein_client.rpc import Answer, Rpc
from bernstein_runtime import forked
from bernstein_runtime.channel import Target, call_async
from bernstein_runtime.connector import Connector
from bernstein_runtime.outgoing import metadata
from bernstein_runtime.status import error_from


class AsyncServiceChannel:
    """One service, for one loop; close it."""

    def __init__(self, name: str, stub: type[Any], connector: Connector) -> None:
        """Connects at the first call; `stub` is the service's generated class."""
        self._name = name
        self._stub_class = stub
        self._connector = connector
        self._service = f"/bernstein_api.{name}.v1.{name.capitalize()}Service"
        self._target: Target | None = None
        self._stub: Any = None
        # Calls that began with a former channel go on there.
        self._channels: list[grpc.aio.Channel] = []
        self._client_id = secrets.token_hex(8)
        self._numbers = count()
        self._reaching = asyncio.Lock()

    def request_id(self) -> str:
        """A new id for a call that changes something."""
        return f"{self._client_id}-{next(self._numbers)}"

    async def reach(self) -> None:
        """Have the service running, and know where. Raises Unavailable, ClientForked."""
        forked.check_usable()
        async with self._reaching:
            await asyncio.to_thread(self._connector.ensure, self._name)
            target = await asyncio.to_thread(self._connector.target, self._name)
            if target != self._target:
                forked.loop_channel_opened()
                self._channels.append(target.open_async())
                self._stub, self._target = self._stub_class(self._channels[-1]), target

    async def answer(self, rpc: Rpc[Answer]) -> Answer:
        """What a call means. Raises our own errors."""
        if self._stub is None:
            await self.reach()

        async def send() -> Any:
            forked.check_usable()
            method = getattr(self._stub, rpc.name)
            return await method(rpc.sent(), timeout=rpc.timeout, metadata=self._metadata())

        path = f"{self._service}/{rpc.name}"
        return rpc.read(await call_async(path, send, revive=self.reach))

    async def stream(self, rpc: Rpc[Answer]) -> AsyncGenerator[Any, None]:
        """The messages of a server stream; whoever leaves it early ends the call."""
        await self.reach()
        method = getattr(self._stub, rpc.name)
        call = method(rpc.sent(), timeout=rpc.timeout, metadata=self._metadata())
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as failure:
            raise error_from(failure) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all calls."""
        while self._channels:
            await self._channels.pop().close()
            forked.loop_channel_closed()
        self._stub = self._target = None

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (*metadata(), *self._connector.metadata)
