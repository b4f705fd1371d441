"""What a replay of an MCP server's traffic must wait for, and what is due without a request.

Rows stand in the order in which exchanges ended. What a server said unasked is due when all rows
before it were asked for; after a server's request its exchange goes on when the client answered,
if it had answered when that was recorded. Rules: docs/formats/mcp.md, section 4.
"""

from collections.abc import Iterable

from bernstein_formats.http_exchange import Exchange
from bernstein_formats.mcp_message import Kind
from bernstein_formats.mcp_transcript import STDIO, UNASKED


class Order:
    """The rows of one lane and one server, in their order."""

    def __init__(self, exchanges: Iterable[Exchange], lane: str, path: str) -> None:
        self._rows = [each for each in exchanges if each.lane == lane and each.path == path]
        self._taken: set[int] = set()
        self._begin = 0

    @property
    def has_unasked(self) -> bool:
        """Whether the server said anything unasked."""
        return any(row.method == UNASKED for row in self._rows)

    @property
    def has_lines(self) -> bool:
        """Whether messages were recorded as lines."""
        return any(row.method == STDIO for row in self._rows)

    def taken(self, exchange: Exchange) -> None:
        """A row was asked for."""
        self._taken.add(exchange.seq)

    def next_due(self) -> Exchange | None:
        """The next unasked row, if its turn has come; then it counts as taken."""
        while self._begin < len(self._rows):
            row = self._rows[self._begin]
            if row.seq not in self._taken:
                if row.method != UNASKED:
                    return None
                self._taken.add(row.seq)
                return row
            self._begin += 1
        return None

    def waits_for_client(self, exchange: Exchange) -> bool:
        """Whether the client answered the server in the course of this exchange."""
        for row in self._rows:
            if row.seq == exchange.seq:
                return False
            if row.seq > exchange.seq and row.model == Kind.ANSWER.value:
                return True
        return False
