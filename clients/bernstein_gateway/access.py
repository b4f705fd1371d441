"""Who may look: whoever reaches the Unix socket, and whoever shows the key of this gateway.

A loopback port is open to every user of the host and, through a page that has its own name point
here, to web sites. So a port asks for the key, and answers to its own names only.
"""

import secrets
import time
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import URL, Headers, QueryParams
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEY_PARAMETER: Final = "token"
COOKIE: Final = "bernstein_gateway"
LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
SECURITY_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(slots=True)
class Activity:
    """How many requests are being answered, and when the last one ended."""

    in_flight: int = 0
    last: float = field(default_factory=time.monotonic)

    def idle_seconds(self) -> float:
        return 0.0 if self.in_flight else time.monotonic() - self.last


class Access:
    """Around every request: is it allowed, and is the gateway in use."""

    def __init__(self, app: ASGIApp, *, token: str, is_loopback: bool, activity: Activity) -> None:
        self._app = app
        self._token = token
        self._is_loopback = is_loopback
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._activity.in_flight += 1
        try:
            answer = self._refusal(scope) or self._app
            await answer(scope, receive, _with_headers(send))
        finally:
            self._activity.in_flight -= 1
            self._activity.last = time.monotonic()

    def _refusal(self, scope: Scope) -> Response | None:
        """None for a request that is let in; a link with the key gets the key as a cookie."""
        if is_unix(scope):
            return None
        headers = Headers(scope=scope)
        if self._is_loopback and _host_name(headers.get("host", "")) not in LOOPBACK_NAMES:
            return refusal(421, "this gateway answers to loopback names only")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return refusal(403, "the request comes from another site")
        query = QueryParams(scope["query_string"])
        if self._is_key(query.get(KEY_PARAMETER, "")) and scope["method"] == "GET":
            return self._admitted(scope, query)
        _, _, bearer = headers.get("authorization", "").partition("Bearer ")
        if self._is_key(bearer) or self._is_key(_cookie_in(headers.get("cookie", ""))):
            return None
        return refusal(403, "open the address that `bernstein view RUN` prints")

    def _is_key(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())

    def _admitted(self, scope: Scope, query: QueryParams) -> Response:
        """To the same page, with the key out of the address bar and in a cookie."""
        rest = urlencode([each for each in query.multi_items() if each[0] != KEY_PARAMETER])
        path = URL(scope=scope).path
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
        answer.set_cookie(
            COOKIE,
            self._token,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        return answer


def is_unix(scope: Scope) -> bool:
    """Whether a request came over a Unix socket, where the file's mode decides who may call."""
    server = scope.get("server")
    return server is not None and server[1] is None


def refusal(status: int, detail: str, reason: str = "CALLER_NOT_ALLOWED") -> Response:
    """A refusal in the form that all of ours have."""
    return JSONResponse({"error": reason, "detail": detail}, status)


def _host_name(host: str) -> str:
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.strip("[]").lower()


def _cookie_in(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), text.encode()) for name, text in SECURITY_HEADERS.items()]
            message["headers"] = [*message.get("headers", ()), *extra]
        await send(message)

    return sending
