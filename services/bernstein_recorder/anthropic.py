"""Anthropic Messages: POST {base_url}/v1/messages."""

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_formats.llm_calls import CallRequest
from bernstein_recorder.dialect import HttpRequest, Provider, json_body

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


def http_request(provider: Provider, call: CallRequest) -> HttpRequest:
    """One user message; `system` and the like are members of this API under the same names."""
    if call.max_tokens == "None":
        raise InvalidInput("anthropic needs max_tokens: give a number", field="max_tokens")
    key = {"x-api-key": provider.api_key} if provider.api_key else {}
    return HttpRequest(
        url=f"{provider.base_url}/v1/messages",
        headers={"anthropic-version": VERSION, **key},
        body=json_body(call, {"messages": [{"role": "user", "content": call.prompt}]}),
    )


def text_in(answer: JsonValue) -> str | None:
    """All text blocks, joined; an answer of tool calls only is an empty text."""
    match answer:
        case {"type": "message", "content": list() as blocks}:
            return "".join(map(_text_of, blocks))
    return None


def _text_of(block: JsonValue) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
    return ""
