"""Reads a stream of server-sent events, however the network cuts it, and notices missing rows.

Rules: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6, and
docs/formats/live-thread.md.
"""

from dataclasses import dataclass

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_formats.thread import STEP_EVENT

# A frame holds one row, escaped; a stream that sends more without a blank line is none of ours.
FRAME_BYTES_MAX = 64 * 1024 * 1024
_BYTE_ORDER_MARK = "\ufeff".encode()


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event; `event_id` is None when the frame has no id of its own."""

    event: str
    data: str
    event_id: str | None


class EventParser:
    """Feed it bytes as they come; any split gives the same events."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._at_start = True
        self._skip_line_feed = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._event_id: str | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete now. Raises LimitExceeded."""
        if not chunk:
            return []
        if self._skip_line_feed:
            # The other half of a CRLF whose CR ended the line already.
            self._skip_line_feed = False
            chunk = chunk.removeprefix(b"\n")
        events: list[ServerEvent] = []
        for piece in chunk.splitlines(keepends=True):
            self._count(len(piece))
            if not piece.endswith((b"\n", b"\r")):
                self._begun.append(piece)
                continue
            line = b"".join([*self._begun, piece.rstrip(b"\r\n")])
            self._begun.clear()
            if self._at_start:
                line = line.removeprefix(_BYTE_ORDER_MARK)
                self._at_start = False
            found = self._line(line.decode("utf-8", "replace"))
            if found is not None:
                events.append(found)
        self._skip_line_feed = chunk.endswith(b"\r")
        return events

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > FRAME_BYTES_MAX:
            raise LimitExceeded(f"an event of more than {FRAME_BYTES_MAX} bytes; the stream ends")

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatched()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._event_id = value
        return None

    def _dispatched(self) -> ServerEvent | None:
        found = None
        if self._data or self._event or self._event_id is not None:
            found = ServerEvent(self._event or "message", "\n".join(self._data), self._event_id)
        self._event, self._data, self._event_id, self._size = "", [], None, 0
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """One row that was delivered, in order and once."""

    index: int
    data: JsonValue


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that did not come: ask again, with `resume_after` as Last-Event-ID (-1: without one)."""

    first_missing: int
    last_missing: int
    resume_after: int


class ThreadCursor:
    """Where a viewer is: rows go by once and in order, anything else leaves the place alone."""

    def __init__(self, last_index: int | None = None) -> None:
        """`last_index` is the last row seen; None: the first row that comes begins the thread."""
        self.last_index = last_index

    def take(self, event: ServerEvent) -> Step | Gap | None:
        """The row of an event; None for heartbeats, status and rows that were seen already.

        Raises InvalidInput for a step that is none.
        """
        if event.event != STEP_EVENT:
            return None
        index = _index_of(event)
        if self.last_index is not None:
            if index <= self.last_index:
                return None
            if index > self.last_index + 1:
                return Gap(self.last_index + 1, index - 1, self.last_index)
        data = parse_json(event.data)
        self.last_index = index
        return Step(index, data)

    def resume_headers(self) -> dict[str, str]:
        """What to ask with after a lost connection."""
        if self.last_index is None or self.last_index < 0:
            return {}
        return {"Last-Event-ID": str(self.last_index)}


def _index_of(event: ServerEvent) -> int:
    text = event.event_id or ""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(f"a step with the id {text[:40]!r}, which is no row's position")
    return int(text)
