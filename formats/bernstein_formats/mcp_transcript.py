"""What goes by between an MCP client and its server, taken apart into exchanges.

A request and what the server says until its answer are one exchange; a notification and a client's
answer are exchanges of their own. What the server says while nobody asks has no request: its place
is the order of the rows. Rules: docs/formats/mcp.md, section 2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_exchange import End
from bernstein_formats.mcp_message import PING, Kind, Message, message_of

# The "method" of a row: how a message came.
STDIO: Final = "STDIO"
# What a server said unasked.
UNASKED: Final = "UNASKED"


@dataclass(slots=True)
class Asked:
    """A request and what was said to it; the clock's seconds beside each piece."""

    seq: int
    began: float
    request: bytes = b""
    method: str = STDIO
    message: Message | None = None
    pieces: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    end: End = End.COMPLETE

    def add(self, piece: bytes, at: float) -> None:
        self.pieces.append(piece)
        self.times.append(at)

    @property
    def chunks(self) -> tuple[tuple[int, float], ...]:
        """Size and milliseconds since the request of each piece."""
        return tuple(
            (len(piece), round((at - self.began) * 1000, 1))
            for piece, at in zip(self.pieces, self.times, strict=True)
        )


class Transcript:
    """Feed it both sides' lines as they go by; it gives the exchanges that are over."""

    def __init__(self, arrive: Callable[[], int], clock: Callable[[], float]) -> None:
        self._arrive = arrive
        self._clock = clock
        self._open: list[Asked] = []
        self._pings: list[JsonValue] = []

    def asked(self, line: bytes) -> Asked | None:
        """A line of the client."""
        message = message_of(line)
        if message is not None and message.kind is Kind.REQUEST:
            if message.method == PING:
                self._pings.append(message.request_id)
                return None
            self._open.append(Asked(self._arrive(), self._clock(), line, message=message))
            return None
        return Asked(self._arrive(), self._clock(), line, message=message)

    def said(self, line: bytes) -> Asked | None:
        """A line of the server."""
        message = message_of(line)
        if message is not None and message.kind is Kind.ANSWER:
            if message.request_id in self._pings:
                self._pings.remove(message.request_id)
                return None
            for each in self._open:
                assert each.message is not None
                if each.message.request_id == message.request_id:
                    self._open.remove(each)
                    each.add(line, self._clock())
                    return each
        belongs = self._asker_of(message)
        if belongs is not None:
            belongs.add(line, self._clock())
            return None
        now = self._clock()
        unasked = Asked(self._arrive(), now, method=UNASKED)
        unasked.add(line, now)
        return unasked

    def ended(self, end: End) -> Iterator[Asked]:
        """What was still without an answer when one side left."""
        while self._open:
            left = self._open.pop(0)
            left.end = end
            yield left

    def _asker_of(self, message: Message | None) -> Asked | None:
        """The request that a server's own message belongs to: by token, else the newest one."""
        if message is not None and message.progress_token is not None:
            for each in self._open:
                assert each.message is not None
                if each.message.progress_token == message.progress_token:
                    return each
        return self._open[-1] if self._open else None
