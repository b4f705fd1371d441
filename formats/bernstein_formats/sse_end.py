"""Whether a streamed answer reached its protocol's own end, and why the model stopped.

A stream that the network ended cleanly may still lack its end (field case F06). Only a reader of
what goes by: the bytes are passed on and kept as they are. Rules: docs/formats/llm-http.md,
section 4.
"""

from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import InvalidInput
from bernstein_formats.event_stream import EventParser, ServerEvent
from bernstein_formats.http_encoding import Decoder, decoded
from bernstein_formats.http_places import objects
from bernstein_formats.http_protocol import Protocol

_LAST_EVENTS: Final = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed", "error"}
)
_DONE: Final = "[DONE]"


class StreamEnd:
    """Feed it the bytes of an event stream as they come; `encoding` is its content encoding."""

    def __init__(self, protocol: Protocol, encoding: str = "") -> None:
        self._protocol = protocol
        self._parser = EventParser()
        self._decoder: Decoder | None = None
        self.is_finished = False
        self.stop_reason = ""
        # Why its end cannot be seen; empty: it can.
        self.trouble = ""
        try:
            self._decoder = Decoder(encoding)
        except InvalidInput as error:
            self.trouble = error.message

    def feed(self, chunk: bytes) -> None:
        """The next bytes."""
        if self._decoder is None:
            return
        try:
            events = self._parser.feed(self._decoder.feed(chunk))
        except InvalidInput as error:  # LimitExceeded: no stream of a model
            self._decoder, self.trouble = None, error.message
            return
        for event in events:
            self._take(event)

    def _take(self, event: ServerEvent) -> None:
        if event.data.strip() == _DONE:
            self.is_finished = True
            return
        try:
            data = parse_json(event.data)
        except InvalidInput:
            return
        reason = stop_reason(data)
        self.stop_reason = reason or self.stop_reason
        members = data if isinstance(data, dict) else {}
        ended = event.event in _LAST_EVENTS or members.get("type") in _LAST_EVENTS
        ended = ended or bool(members.get("error"))
        if self._protocol is Protocol.MCP:
            ended = "method" not in members and ("result" in members or "error" in members)
        gemini = self._protocol is Protocol.GEMINI_GENERATE and bool(reason)
        self.is_finished = self.is_finished or ended or gemini


def whole_end(protocol: Protocol, body: bytes, encoding: str) -> tuple[bool | None, str]:
    """Of an answer that is no event stream: whether it is finished, and why the model stopped.

    None: it is no stream at all. Gemini streams a JSON array where nobody asked for events.
    """
    try:
        text = decoded(encoding, body)
    except InvalidInput:
        return None, ""
    is_array = protocol is Protocol.GEMINI_GENERATE and text.lstrip().startswith(b"[")
    try:
        data = parse_json(text)
    except InvalidInput:
        return (False if is_array else None), ""
    if not is_array or not isinstance(data, list):
        return None, stop_reason(data)
    reasons = [reason for each in data if (reason := stop_reason(each))]
    is_error = any(isinstance(each, dict) and each.get("error") for each in data)
    return bool(reasons) or is_error, reasons[-1] if reasons else ""


def stop_reason(data: JsonValue) -> str:
    """Why the model stopped, as the answer (or one event of it) says; empty: it does not say."""
    if not isinstance(data, dict):
        return ""
    holders = [data, *(data[name] for name in ("delta", "message") if name in data)]
    holders += [*objects(data.get("choices")), *objects(data.get("candidates"))]
    for holder in holders:
        if isinstance(holder, dict):
            for name in ("stop_reason", "finish_reason", "finishReason"):
                found = holder.get(name)
                if isinstance(found, str) and found:
                    return found
    return _of_response(data)


def _of_response(data: dict[str, JsonValue]) -> str:
    """OpenAI Responses: its status, or what left it incomplete."""
    response = data.get("response") if "response" in data else data
    if not isinstance(response, dict) or response.get("object") != "response":
        return ""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    status = response.get("status")
    if isinstance(reason, str):
        return reason
    return status if isinstance(status, str) and status != "in_progress" else ""
