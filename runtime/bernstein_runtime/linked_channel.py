"""A channel whose connection may be replaced under it; to its users one like any other."""

from collections.abc import Callable
from typing import Any, Protocol, Self

import grpc

from bernstein_runtime import forked


class Link(Protocol):
    """Knows where new calls go."""

    def channel(self) -> grpc.Channel:
        """The connection of now."""

    def close(self) -> None:
        """End all calls."""


class OwnLink:
    """One connection, which a process that was forked opens anew."""

    def __init__(self, open_channel: Callable[[], grpc.Channel]) -> None:
        self._open = open_channel
        self._channel: grpc.Channel | None = None
        # A parent's; to take it apart is not for its child.
        self._left: list[grpc.Channel] = []
        forked.renew_after_fork(self)

    def channel(self) -> grpc.Channel:
        if self._channel is None:
            forked.check_usable()
            self._channel = self._open()
        return self._channel

    def after_fork(self) -> None:
        if self._channel is not None:
            self._left.append(self._channel)
            self._channel = None

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class LinkedChannel(grpc.Channel):
    """A view of a link, which says `metadata` with each call."""

    def __init__(self, link: Link, *metadata: tuple[str, str], is_owner: bool = False) -> None:
        """An owner's closing closes the link."""
        self._link = link
        self._metadata = metadata
        self._is_owner = is_owner

    def unary_unary(self, method: str, *how: Any, **more: Any) -> Any:
        return self._calls("unary_unary", method, how, more)

    def unary_stream(self, method: str, *how: Any, **more: Any) -> Any:
        return self._calls("unary_stream", method, how, more)

    def stream_unary(self, method: str, *how: Any, **more: Any) -> Any:
        return self._calls("stream_unary", method, how, more)

    def stream_stream(self, method: str, *how: Any, **more: Any) -> Any:
        return self._calls("stream_stream", method, how, more)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        self._link.channel().subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        self._link.channel().unsubscribe(callback)

    def close(self) -> None:
        """A link that others share is not ended with one view of it."""
        if self._is_owner:
            self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _calls(
        self, kind: str, method: str, how: tuple[Any, ...], more: dict[str, Any]
    ) -> Callable[..., Any]:
        made: tuple[grpc.Channel | None, Any] = (None, None)

        def call(request: Any, *, metadata: Any = (), **options: Any) -> Any:
            nonlocal made
            channel = self._link.channel()
            known, send = made
            if known is not channel:
                send = getattr(channel, kind)(method, *how, **more)
                made = (channel, send)
            return send(request, metadata=(*(metadata or ()), *self._metadata), **options)

        return call
