"""The key of a model request over HTTP: two requests share it when they may share an answer.

SHA-256 of the canonical JSON of protocol, method, path, query, feature headers and the body after
the rules. Rules: docs/formats/llm-http.md, section 2.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json_unique
from bernstein_formats.errors import InvalidInput
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_rule_file import RULE_SET
from bernstein_formats.http_rules import Fired, apply_rules
from bernstein_formats.mcp_message import message_of

Pairs = tuple[tuple[str, str], ...]

# Headers that switch features; all others are left out.
KEY_HEADERS: Final = (
    *("anthropic-beta", "anthropic-version", "openai-beta", "x-codex-beta-features"),
    "mcp-protocol-version",
)
_LISTS: Final = frozenset({"anthropic-beta", "openai-beta", "x-codex-beta-features"})
# Query members that carry a secret.
SECRET_QUERY: Final = frozenset({"key", "api_key", "api-key", "access_token"})
# Tool servers; the name of one follows.
MCP_PATH: Final = "/mcp/"
_SUFFIXES: Final = (
    (("/messages", "/messages/count_tokens"), Protocol.ANTHROPIC_MESSAGES),
    (("/chat/completions",), Protocol.OPENAI_CHAT),
    (("/responses",), Protocol.OPENAI_RESPONSES),
    (
        (":generateContent", ":streamGenerateContent", ":countTokens"),
        Protocol.GEMINI_GENERATE,
    ),
)
# In whose shape a provider says an error where nothing else tells.
_OF_PROVIDERS: Final = {
    "anthropic": Protocol.ANTHROPIC_MESSAGES,
    "gemini": Protocol.GEMINI_GENERATE,
}
_MODEL_IN_PATH: Final = re.compile(r"/models/([^/]+):[A-Za-z]+\Z")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it arrived; header names in any case, the query as pairs."""

    method: str
    # With the provider's name in front: "/anthropic/v1/messages".
    path: str
    query: Pairs
    headers: Pairs
    body: bytes
    # Rule → count of the secrets that were replaced in the body.
    redacted: Mapping[str, int] = field(default_factory=dict)

    @property
    def protocol(self) -> Protocol:
        """What is spoken there, told by the end of the path; by its start for tool servers."""
        if self.path.startswith(MCP_PATH):
            return Protocol.MCP
        for endings, protocol in _SUFFIXES:
            if self.path.endswith(endings):
                return protocol
        return Protocol.OTHER

    @property
    def error_protocol(self) -> Protocol:
        """In whose shape its client reads an error."""
        provider = self.path.split("/", 2)[1]
        protocol = self.protocol
        return _OF_PROVIDERS.get(provider, protocol) if protocol is Protocol.OTHER else protocol


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request's key, what it was made of, and which rules changed something."""

    key: str
    canonical: dict[str, JsonValue]
    # The texts that each rule took away, for each rule that changed something.
    taken: Mapping[str, list[str]]
    redacted: Mapping[str, int]
    model: str

    @property
    def rules(self) -> dict[str, int]:
        """Which rules changed something, and how often."""
        counts = {name: len(texts) for name, texts in self.taken.items()}
        return dict(sorted(({**counts, **self.redacted}).items()))


def keyed(request: HttpRequest) -> Keyed:
    """The key of a request."""
    fired = Fired()
    body, model = _body(request, fired)
    canonical: dict[str, JsonValue] = {
        "v": RULE_SET.version,
        "protocol": request.protocol.value,
        "method": request.method.upper(),
        "path": request.path,
        "query": [[name, value] for name, value in open_query(request.query)],
        "headers": _key_headers(request.headers),
        "replaced": dict(sorted(({**fired.in_key, **request.redacted}).items())),
        "body": body,
    }
    digest = hashlib.sha256(canonical_bytes(canonical, Profile.PY_JSON)).hexdigest()
    return Keyed(digest, canonical, fired.taken, request.redacted, model)


def open_query(query: Iterable[tuple[str, str]]) -> Pairs:
    """The query without secrets, sorted."""
    return tuple(sorted(each for each in query if each[0].lower() not in SECRET_QUERY))


def _key_headers(headers: Pairs) -> dict[str, JsonValue]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() in KEY_HEADERS:
            found.setdefault(name.lower(), []).append(value)
    return {
        name: [*(_parts(values) if name in _LISTS else values)]
        for name, values in sorted(found.items())
    }


def _parts(values: list[str]) -> list[str]:
    return sorted(part.strip() for value in values for part in value.split(",") if part.strip())


def _body(request: HttpRequest, fired: Fired) -> tuple[JsonValue, str]:
    """The body after the rules, and the model that it names.

    What is no JSON object, or could be read in two ways, counts by its bytes.
    """
    model: JsonValue = _named_beside(request)
    parsed = _parsed(request.body)
    if parsed is None:
        return {"bytes": hashlib.sha256(request.body).hexdigest()}, str(model)
    apply_rules(request.protocol, parsed, fired)
    model = model or parsed.get("model")
    return {"json": parsed}, model if isinstance(model, str) else ""


def _named_beside(request: HttpRequest) -> str:
    """What the path names as the model; for a tool server what is asked of it."""
    if request.protocol is Protocol.MCP:
        message = message_of(request.body)
        return message.subject if message else ""
    in_path = _MODEL_IN_PATH.search(request.path)
    return in_path[1] if in_path else ""


def _parsed(body: bytes) -> dict[str, JsonValue] | None:
    try:
        parsed = parse_json_unique(body)
        canonical_bytes(parsed, Profile.PY_JSON)
    except InvalidInput:
        return None
    return parsed if isinstance(parsed, dict) else None
