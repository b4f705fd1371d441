"""What an agent asks, before anybody answers it: its lane, its path, its bytes, its key.

Whatever is refused here is told in the protocol's own error shape, so that its client stops.
"""

from dataclasses import dataclass
from typing import Final

from aiohttp import web
from yarl import URL

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_key import HttpRequest, Pairs
from bernstein_formats.http_miss import error_body, error_status
from bernstein_formats.http_protocol import Protocol
from bernstein_proxy.upstream import BASE_URLS, TOOL_SERVERS

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
UNEXPECTED_PATH: Final = "UNEXPECTED_PATH"
# Of a refusal that quotes its request.
TEXT_MAX: Final = 300
# Asked beside model calls; recorded and replayed like them.
_OTHER_ENDS: Final = ("/models", "/embeddings", ":embedContent", ":batchEmbedContents")
_JSON: Final = "application/json"


class Refused(Exception):
    """A request that is neither recorded nor looked up; `response` says why to its client."""

    def __init__(self, text: str, code: str, response: web.Response) -> None:
        super().__init__(text)
        self.code = code
        self.response = response


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a request goes: the provider, and path and query as the agent wrote them."""

    provider: str
    rest: str
    query: str
    # What is spoken there, as far as errors go.
    protocol: Protocol

    @property
    def path(self) -> str:
        """The path that keys and rows have."""
        return f"/{self.provider}/{self.rest}" if self.rest else f"/{self.provider}"


def asked_of(request: web.Request) -> Asked:
    """The request's place. Raises Refused for a path that no known client calls."""
    raw = request.rel_url.raw_path.split("/", 4)
    provider, rest = raw[3], raw[4] if len(raw) > 4 else ""
    if provider == TOOL_SERVERS:
        name, _, rest = rest.partition("/")
        provider = f"{TOOL_SERVERS}/{name}"
    place = HttpRequest(request.method, f"/{provider}/{rest}", (), (), b"")
    protocol = place.error_protocol
    found = Asked(provider, rest, request.rel_url.raw_query_string, protocol)
    if request.headers.get("Upgrade", "").lower() == "websocket":
        text = "UPGRADE_REQUIRED: WebSocket is not recorded; use HTTP POST"
        # Clients fall back to HTTP at 426, and at nothing else (measured).
        response = error_response(426, protocol, text, "UPGRADE_REQUIRED")
        raise Refused("", "UPGRADE_REQUIRED", response)
    is_provider = provider in BASE_URLS or place.protocol is Protocol.MCP
    if not is_provider or request.method == "HEAD" or not _is_known(place):
        text = f"{UNEXPECTED_PATH}: no model call known here: {request.method} {place.path}"
        response = error_response(404, protocol, text[:TEXT_MAX], UNEXPECTED_PATH)
        raise Refused(text, UNEXPECTED_PATH, response)
    return found


def is_hello(request: web.Request) -> bool:
    """Whether a client only looks if anybody is there; no model call."""
    return request.method == "HEAD" and request.rel_url.raw_path.endswith("/api/hello")


def _is_known(place: HttpRequest) -> bool:
    path = place.path
    if ".." in path or "//" in path or "\\" in path:
        return False
    is_call = place.protocol is not Protocol.OTHER
    return is_call or path.endswith(_OTHER_ENDS) or "/models/" in path


async def read_request(request: web.Request, asked: Asked) -> HttpRequest:
    """The whole request. Raises Refused for one that is too large or cannot be opened."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"LIMIT_EXCEEDED: a request of more than {BODY_BYTES_MAX} bytes is not taken"
        response = error_response(413, asked.protocol, text, "LIMIT_EXCEEDED")
        raise Refused(text, "LIMIT_EXCEEDED", response) from None
    except web.RequestPayloadError as error:
        text = "INVALID_INPUT: the request's body is not what its Content-Encoding says"
        response = error_response(400, asked.protocol, text, "INVALID_INPUT")
        raise Refused(text, "INVALID_INPUT", response) from error
    return HttpRequest(
        method=request.method,
        path=asked.path,
        query=tuple(URL(f"?{asked.query}", encoded=True).query.items()),
        headers=sent_headers(request),
        body=body,
    )


def sent_headers(request: web.Request) -> Pairs:
    """Headers as they came; a compressed body has been opened when it is read."""
    pairs = (
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers
    )
    return tuple(each for each in pairs if each[0].lower() != "content-encoding")


def refusal(asked: Asked, text: str, code: str) -> Refused:
    """A request that clients shall not repeat."""
    status = error_status(asked.protocol)
    return Refused(text, code, error_response(status, asked.protocol, text, code))


def error_response(
    status: int,
    protocol: Protocol,
    text: str,
    code: str,
    *,
    key: str = "",
    request_id: JsonValue = None,
) -> web.Response:
    """An error in the protocol's own shape, with the header that stops retries."""
    return web.Response(
        status=status,
        body=error_body(protocol, text, key, code, request_id),
        content_type=_JSON,
        headers={"x-should-retry": "false"},
    )
