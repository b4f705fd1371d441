"""OpenAI-compatible chat completions: POST {base_url}/chat/completions."""

from bernstein_formats.canonical import JsonValue
from bernstein_formats.llm_calls import CallRequest
from bernstein_recorder.dialect import HttpRequest, Provider, json_body

BASE_URL = "https://api.openai.com/v1"


def http_request(provider: Provider, call: CallRequest) -> HttpRequest:
    """One user message; a `system` parameter becomes the message before it."""
    messages: list[JsonValue] = [{"role": "user", "content": call.prompt}]
    parameters = dict(call.parameters)
    if "system" in parameters:
        messages.insert(0, {"role": "system", "content": parameters.pop("system")})
    asked = CallRequest(
        call.model, call.prompt, call.provider, call.temperature, call.max_tokens, parameters
    )
    return HttpRequest(
        url=f"{provider.base_url}/chat/completions",
        headers={"Authorization": f"Bearer {provider.api_key}"} if provider.api_key else {},
        body=json_body(asked, {"messages": messages}),
    )


def text_in(answer: JsonValue) -> str | None:
    """The first choice's text. A message of tool calls only has a null content: an empty text."""
    match answer:
        case {"choices": [{"message": {"content": str() as text}}, *_]}:
            return text
        case {"choices": [{"message": {"content": list() as parts}}, *_]}:
            return "".join(map(_text_of, parts))
        case {"choices": [{"message": {"role": "assistant", **others}}, *_]}:
            return "" if others.get("content") is None else None
    return None


def _text_of(part: JsonValue) -> str:
    match part:
        case {"type": "text", "text": str() as text}:
            return text
    return ""
