"""Messages of the Model Context Protocol: JSON-RPC, one object each.

What a message is, which request it belongs to, and how a recorded answer gets the asker's id.
Rules: docs/formats/mcp.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json_unique, spelled
from bernstein_formats.errors import InvalidInput

PING: Final = "ping"
# In the range that JSON-RPC leaves to implementations; none that MCP or its SDKs use.
MISS_CODE: Final = -32050


class Kind(StrEnum):
    """What a message wants."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    # A result or an error.
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `request_id` is null for a notification."""

    kind: Kind
    method: str
    request_id: JsonValue
    # What ties notifications of progress to a request.
    progress_token: JsonValue
    # The tool, where one is called.
    tool: str

    @property
    def subject(self) -> str:
        """What it is about, in a few words."""
        return " ".join(filter(None, (self.method or self.kind.value, self.tool)))


def message_of(data: bytes | str) -> Message | None:
    """The message in these bytes; None for what is no single message."""
    try:
        found = parse_json_unique(data)
    except InvalidInput:
        return None
    if not isinstance(found, dict):
        return None
    method = found.get("method")
    if not isinstance(method, str):
        is_answer = "result" in found or "error" in found
        return Message(Kind.ANSWER, "", found.get("id"), None, "") if is_answer else None
    kind = Kind.REQUEST if found.get("id") is not None else Kind.NOTIFICATION
    params = found.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if kind is Kind.NOTIFICATION:
        token = params.get("progressToken")
    name = params.get("name") if method == "tools/call" else None
    return Message(kind, method, found.get("id"), token, name if isinstance(name, str) else "")


@dataclass(frozen=True, slots=True)
class Readdressed:
    """Turns what a server said to a recorded request into what it says to the one that asks."""

    recorded: Message
    asked: Message

    def line(self, data: bytes) -> bytes:
        """The same bytes, unless they name the recorded id or token and the asker's is another."""
        message = message_of(data)
        if message is None:
            return data
        if self._is_answer(message) and self.recorded.request_id != self.asked.request_id:
            return _changed(data, "id", self.asked.request_id)
        token = self.recorded.progress_token
        if (
            message.kind is Kind.NOTIFICATION
            and token is not None
            and message.progress_token == token != self.asked.progress_token
        ):
            return _changed(data, "progressToken", self.asked.progress_token)
        return data

    @property
    def changes_nothing(self) -> bool:
        """Whether all bytes stay as they are."""
        return (
            self.recorded.request_id == self.asked.request_id
            and self.recorded.progress_token == self.asked.progress_token
        )

    def _is_answer(self, message: Message) -> bool:
        return message.kind is Kind.ANSWER and message.request_id == self.recorded.request_id


def _changed(data: bytes, member: str, value: JsonValue) -> bytes:
    found = parse_json_unique(data)
    assert isinstance(found, dict)
    holder = found if member == "id" else found["params"]
    assert isinstance(holder, dict)
    holder[member] = value
    return spelled(found).encode() + data[len(data.rstrip(b"\r\n")) :]


def answer_to_ping(message: Message) -> bytes:
    """What every server answers."""
    return spelled({"jsonrpc": "2.0", "id": message.request_id, "result": {}}).encode()


def error_answer(request_id: JsonValue, text: str, key: str, code: str) -> bytes:
    """An error as a server says it; `code` is our word for it."""
    data: dict[str, JsonValue] = {"code": code, "key": key}
    error: dict[str, JsonValue] = {"code": MISS_CODE, "message": text, "data": data}
    return spelled({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
