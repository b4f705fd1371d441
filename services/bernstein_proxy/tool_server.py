"""A tool server that is replayed: which of its rows are due, and whom its answers wait for."""

import asyncio

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.mcp_message import Kind, message_of
from bernstein_formats.mcp_order import Order


class ToolServer:
    """Shared by all connections that one lane has to one server. Only the event loop touches it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._answered: list[JsonValue] = []
        self._changed = asyncio.Condition()
        self._is_closed = False

    @property
    def says_anything_unasked(self) -> bool:
        return self._order.has_unasked

    @property
    def has_lines(self) -> bool:
        """Whether its messages were recorded as lines, which at an address the older way does."""
        return self._order.has_lines

    async def client_answered(self, request_id: JsonValue) -> None:
        """The client answered a request of the server."""
        async with self._changed:
            self._answered.append(request_id)
            self._changed.notify_all()

    async def taken(self, exchange: Exchange) -> None:
        """An exchange was replayed to its end."""
        async with self._changed:
            self._order.taken(exchange)
            self._changed.notify_all()

    async def close(self) -> None:
        """Nothing more is coming: the lane missed."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    async def may_go_on(self, exchange: Exchange, piece: bytes | str) -> bool:
        """Wait for the client where the piece is a question to it that was answered when this was
        recorded. False: the lane was closed meanwhile."""
        message = message_of(piece)
        if message is None or message.kind is not Kind.REQUEST:
            return True
        if not self._order.waits_for_client(exchange):
            return True
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._is_closed or message.request_id in self._answered
            )
            return not self._is_closed

    async def next_due(self) -> Exchange | None:
        """Wait for the next row that the server said unasked; None when the lane is closed."""
        due: list[Exchange] = []

        def is_there() -> bool:
            if (row := self._order.next_due()) is not None:
                due.append(row)
            return self._is_closed or bool(due)

        async with self._changed:
            await self._changed.wait_for(is_there)
        return None if self._is_closed else due[0]
