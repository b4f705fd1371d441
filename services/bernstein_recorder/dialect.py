"""What the provider modules share: settings, a request, and the protocol each of them speaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import InvalidInput
from bernstein_formats.llm_calls import CallRequest, literal_value

# What the key is made of, or what would change the form of the answer.
RESERVED_PARAMETERS = frozenset(
    {"max_tokens", "messages", "model", "prompt", "stream", "temperature"}
)


@dataclass(frozen=True, slots=True)
class Provider:
    """How to reach one provider. The key is never shown."""

    name: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST, ready to be sent."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Dialect(Protocol):
    """One provider's HTTP API; a module is one."""

    BASE_URL: str

    def http_request(self, provider: Provider, call: CallRequest) -> HttpRequest:
        """The request for a call. Raises InvalidInput for what the API cannot express."""
        ...

    def text_in(self, answer: JsonValue) -> str | None:
        """The model's text, "" when it gave none; None when this is not an answer."""
        ...


def json_body(call: CallRequest, members: Mapping[str, JsonValue]) -> bytes:
    """The JSON body: `members` and what a call has in every dialect; a literal None is left out."""
    reserved = sorted(RESERVED_PARAMETERS & call.parameters.keys())
    if reserved:
        raise InvalidInput(
            f"parameter {reserved[0]!r} cannot be set: it is a field of the call itself",
            field="parameters",
        )
    literals: dict[str, JsonValue] = {
        "temperature": literal_value(call.temperature, "temperature"),
        "max_tokens": literal_value(call.max_tokens, "max_tokens"),
    }
    given = {name: value for name, value in literals.items() if value is not None}
    body: dict[str, JsonValue] = {"model": call.model, **given, **call.parameters, **members}
    return spelled(body).encode("ascii")
