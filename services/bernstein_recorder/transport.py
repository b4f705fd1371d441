"""One POST to a provider: time limit, bounded answer, retries where nothing can have been billed.

Imported at the first live call only: a process that replays stays small.
"""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urlsplit

import httpx2
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential_jitter,
)

from bernstein_formats.errors import ProviderFailed
from bernstein_recorder.dialect import HttpRequest
from bernstein_runtime import limits
from bernstein_runtime.clock import Clock
from bernstein_runtime.disk import in_words

CONNECT_SECONDS = 10.0
# JSON may write one character of a text as six.
BODY_BYTES_MAX = 2 * limits.ANSWER_BYTES_MAX
ERROR_BODY_BYTES_MAX = 64 * 1024
RETRIED_STATUSES = frozenset({408, 409, 429})
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
FALLBACK_WAIT = wait_exponential_jitter(multiplier=0.2, max=5.0, jitter=0.2)

# Makes an error for a status other than 200 out of it and the body.
Explain = Callable[[int, bytes], ProviderFailed]


class _TryAgain(Exception):
    """A failure after which the same request may be sent again, and how long to wait before."""

    def __init__(self, failure: ProviderFailed, wait_seconds: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.wait_seconds = wait_seconds


class Transport:
    """Connections to providers, shared by all callers."""

    def __init__(self, clock: Clock, *, attempts: int, seconds: float) -> None:
        self._clock = clock
        self._attempts = attempts
        self._seconds = seconds
        # Proxies of the environment are for the outside world only.
        self._clients = {outside: _client(trust_env=outside) for outside in (True, False)}

    def post(self, provider: str, request: HttpRequest, explain: Explain) -> bytes:
        """The body of a 200 answer. Raises ProviderFailed, at the latest about `seconds` from now;
        a server that drips can stretch that to twice as long."""
        give_up = time.monotonic() + self._seconds
        retrying = Retrying(
            retry=retry_if_exception_type(_TryAgain),
            stop=stop_after_attempt(self._attempts) | stop_before_delay(self._seconds),
            wait=_wait_seconds,
            reraise=True,
        )
        try:
            return retrying(self._attempt, provider, request, explain, give_up)
        except _TryAgain as last:
            raise last.failure from last

    def close(self) -> None:
        """End all connections."""
        for client in self._clients.values():
            client.close()

    def _attempt(
        self, provider: str, request: HttpRequest, explain: Explain, give_up: float
    ) -> bytes:
        left = max(give_up - time.monotonic(), 0.05)
        timeout = httpx2.Timeout(left, connect=min(left, CONNECT_SECONDS))
        client = self._clients[urlsplit(request.url).hostname not in LOOPBACK]
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        try:
            with client.stream(
                "POST",
                request.url,
                content=request.body,
                headers=headers | dict(request.headers),
                timeout=timeout,
            ) as response:
                return self._body(provider, response, explain, give_up)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _TryAgain(_cannot_connect(provider, request.url, in_words(error))) from error
        except httpx2.TimeoutException as error:
            raise self._too_slow(provider) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ProviderFailed(
                f"provider {provider}: the connection broke before the answer was complete"
                f" ({type(error).__name__}); not sent again, because the call may be billed:"
                " repeat it if that is fine",
                provider=provider,
            ) from error

    def _body(
        self, provider: str, response: httpx2.Response, explain: Explain, give_up: float
    ) -> bytes:
        status = response.status_code
        limit = BODY_BYTES_MAX if status == httpx2.codes.OK else ERROR_BODY_BYTES_MAX
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > limit:
                break
            if time.monotonic() > give_up:
                raise self._too_slow(provider)
        if status == httpx2.codes.OK:
            if len(body) > limit:
                raise ProviderFailed(
                    f"provider {provider}: the answer is larger than {limit} bytes;"
                    " ask for less with max_tokens",
                    provider=provider,
                    limit=limit,
                )
            return bytes(body)
        failure = explain(status, bytes(body))
        if status in RETRIED_STATUSES or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise _TryAgain(failure, self._retry_after(response))
        raise failure

    def _too_slow(self, provider: str) -> ProviderFailed:
        return ProviderFailed(
            f"provider {provider}: no complete answer within {self._seconds:g} s; ask for less, or"
            " raise [recorder] call_timeout_seconds",
            provider=provider,
        )

    def _retry_after(self, response: httpx2.Response) -> float | None:
        """Seconds that the server asks for (RFC 9110, section 10.2.3)."""
        text = response.headers.get("retry-after", "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.now_seconds())
        except (ValueError, OverflowError):
            return None


def _wait_seconds(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, _TryAgain) and error.wait_seconds is not None:
        return error.wait_seconds
    return FALLBACK_WAIT(state)


def _cannot_connect(provider: str, url: str, reason: str) -> ProviderFailed:
    where = urlsplit(url)
    return ProviderFailed(
        f"provider {provider}: cannot connect to {where.scheme}://{where.netloc} ({reason[:120]});"
        " is it running, and is its base URL right?",
        provider=provider,
    )


def _client(*, trust_env: bool) -> httpx2.Client:
    return httpx2.Client(
        trust_env=trust_env,
        follow_redirects=False,
        # Cookies of one caller's provider are nobody else's business.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        # A connection that is used again may just have been closed at the other end, and then
        # nobody knows whether the call was made; a new one costs little beside a model's answer.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )
