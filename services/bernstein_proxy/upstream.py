"""Where a lane's requests go: one configured host a provider, with the key added here.

Nothing that an agent sends can change the host: its path and query are appended to the configured
address, and its own key, which is a dummy, is left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from bernstein_formats.errors import InvalidInput
from bernstein_formats.http_key import SECRET_QUERY

BASE_URLS: Final = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com",
}
# Where servers of the Model Context Protocol are: this, and the name that the user gave it.
TOOL_SERVERS: Final = "mcp"
_TOOL_SERVER: Final = re.compile(rf"{TOOL_SERVERS}/[A-Za-z0-9._-]{{1,64}}")
# Gemini's version, which some of its clients leave out.
_GEMINI_VERSION: Final = "v1beta"
_KEY_HEADERS: Final = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}
# What the agent must not choose, and what concerns its own connection only.
_LEFT_OUT: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"),
        *("transfer-encoding", "content-length", "expect", "accept-encoding", "content-encoding"),
        *("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "forwarded"),
        *("x-forwarded-for", "x-forwarded-host", "x-goog-api-key"),
    }
)
_KEY = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class Upstream:
    """One provider. The key is never shown."""

    name: str
    base_url: str
    api_key: str = field(default="", repr=False)
    # The proxy that this environment has for it; looked up once, not for each request.
    proxy: str | None = None

    def url(self, rest: str, query: str) -> URL:
        """The address of a request; `rest` and `query` are as the agent wrote them."""
        if self.name == "openai":  # its address has the version already
            rest = rest.removeprefix("v1/")
        if self.name == "gemini" and rest.partition("/")[0] == "models":
            rest = f"{_GEMINI_VERSION}/{rest}"
        address = f"{self.base_url.rstrip('/')}/{rest}" if rest else self.base_url
        query = "&".join(pair for pair in query.split("&") if not _is_secret(pair))
        return URL(f"{address}?{query}" if query else address, encoded=True)

    def headers(self, sent: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """The agent's headers with the real key in the place of its own."""
        # A tool server's own key is the agent's affair: it goes to that server and nowhere else.
        is_tool = self.name.startswith(f"{TOOL_SERVERS}/")
        left_out = _LEFT_OUT - {"authorization"} if is_tool else _LEFT_OUT
        headers = [(name, value) for name, value in sent if name.lower() not in left_out]
        # What is stored shall be readable, and fit every client.
        headers.append(("Accept-Encoding", "identity"))
        if self.api_key and self.name in _KEY_HEADERS:
            headers.append((_KEY_HEADERS[self.name], self.api_key))
        elif self.api_key:
            headers.append(("Authorization", f"Bearer {self.api_key}"))
        return headers


def _is_secret(pair: str) -> bool:
    """Whether a member of the query is the agent's key, a dummy."""
    return unquote(pair.partition("=")[0]).lower() in SECRET_QUERY


def upstream(name: str, base_url: str, api_key: str) -> Upstream:
    """A provider as configured; without an address its public one. Raises InvalidInput."""
    if name not in BASE_URLS and not (_TOOL_SERVER.fullmatch(name) and base_url):
        raise InvalidInput(
            f"provider {name!r}: the proxy speaks to {', '.join(sorted(BASE_URLS))}, and to tool"
            f" servers, mcp/NAME with an address",
            name=name,
        )
    base_url = base_url or BASE_URLS[name]
    found = Upstream(name, base_url, api_key, _proxy_for(base_url))
    try:
        url = URL(found.base_url)
    except ValueError as error:
        raise InvalidInput(f"provider {name}: {found.base_url!r} is no address") from error
    if url.scheme not in {"http", "https"} or not url.host or url.query_string or url.user:
        raise InvalidInput(
            f"provider {name}: the base URL must be http(s)://HOST/PATH with no query or user",
            name=name,
        )
    if not _KEY.fullmatch(api_key):
        raise InvalidInput(f"the key of provider {name} holds characters that no key has")
    return found


def _proxy_for(base_url: str) -> str | None:
    """What HTTP_PROXY, HTTPS_PROXY and NO_PROXY say of an address."""
    scheme, _, rest = base_url.partition("://")
    host = rest.partition("/")[0]
    return None if proxy_bypass(host) else getproxies().get(scheme)
