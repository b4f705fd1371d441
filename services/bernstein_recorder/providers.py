"""Who is known as a provider, how a session or the configuration reaches it, and one call to it."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bernstein_formats.canonical import parse_json, spelled
from bernstein_formats.errors import InvalidInput, KeyUnusable, ProviderFailed
from bernstein_formats.llm_calls import CallRequest
from bernstein_recorder import anthropic, openai
from bernstein_recorder.dialect import Dialect, Provider
from bernstein_runtime import limits, trace
from bernstein_runtime.clock import Clock
from bernstein_runtime.config import RecorderConfig

if TYPE_CHECKING:
    from bernstein_recorder.transport import Transport

DIALECTS: Mapping[str, Dialect] = {"anthropic": anthropic, "openai": openai}
KNOWN = ", ".join(sorted(DIALECTS))
# A provider's own error word; its prose may repeat the prompt or the key.
_ERROR_WORD = re.compile(r"[a-z]+(_[a-z]+)*")
_ERROR_WORD_CHARACTERS_MAX = 48
_KEY = re.compile(r"[\x21-\x7e]*")

Settings = Mapping[str, Provider]


def checked(provider: Provider) -> Provider:
    """The provider with its defaults. Raises InvalidInput, without showing URL or key."""
    if provider.name not in DIALECTS:
        raise InvalidInput(f"unknown provider {provider.name[:40]!r}; known are {KNOWN}")
    base_url = (provider.base_url or DIALECTS[provider.name].BASE_URL).rstrip("/")
    if not _is_plain_http(base_url):
        raise InvalidInput(
            f"the base URL of provider {provider.name} must be http:// or https:// with a host,"
            " without user, password, query and fragment",
            field="base_url",
        )
    if not _KEY.fullmatch(provider.api_key):
        raise InvalidInput(
            f"the key of provider {provider.name} holds blanks, line ends or other characters that"
            " no key has; give it alone",
            field="api_key",
        )
    return Provider(provider.name, base_url, provider.api_key)


def _is_plain_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is not a port
    except ValueError:
        return False
    has_extras = parts.username is not None or parts.query or parts.fragment
    printable = url.isascii() and url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"} and bool(parts.hostname) and printable and not has_extras
    )


class Providers:
    """Dials live models. Thread-safe."""

    def __init__(self, config: RecorderConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._transport: Transport | None = None

    def dial(self, call: CallRequest, session: Settings) -> str:
        """The model's answer, "" included. A session's own settings replace the configured ones
        whole: a configured key never goes to an address that a caller named.

        Raises InvalidInput, KeyUnusable, ProviderFailed.
        """
        self.check(call)
        name = call.provider
        provider = session[name] if name in session else self._configured(name)
        dialect = DIALECTS[name]
        if not provider.api_key and provider.base_url == dialect.BASE_URL:
            raise InvalidInput(
                f"provider {name} has no key: set {name.upper()}_API_KEY where the run is started,"
                f" or [recorder] {name}_key_file",
                provider=name,
            )
        request = dialect.http_request(provider, call)
        with trace.span("ask provider", "client", provider=name, model=call.model):
            body = self._connections().post(
                name, request, lambda status, answer: _refusal(name, call.model, status, answer)
            )
        return _text_in(name, dialect, body)

    def address(self, call: CallRequest, session: Settings) -> str:
        """The base URL that a call would go to. Raises InvalidInput."""
        self.check(call)
        name = call.provider
        if name in session:
            return session[name].base_url
        return checked(Provider(name, self._configured_base_url(name))).base_url

    def check(self, call: CallRequest) -> None:
        """Refuse a call that no live provider could take, before anything is done for it."""
        if call.provider == "none":
            raise InvalidInput(
                "the provider is 'none', so no model is called: set internal_llm_provider to one"
                f" of {KNOWN}",
                field="provider",
            )
        if call.provider not in DIALECTS:
            raise InvalidInput(
                f"unknown provider {call.provider[:40]!r}; known are {KNOWN}", field="provider"
            )
        if not call.model:
            raise InvalidInput("no model is named; set internal_llm_model", field="model")

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            if self._transport is not None:
                self._transport.close()
                self._transport = None

    def _configured(self, name: str) -> Provider:
        return checked(Provider(name, self._configured_base_url(name), self._key_in(name)))

    def _configured_base_url(self, name: str) -> str:
        return str(getattr(self._config, f"{name}_base_url"))

    def _key_in(self, name: str) -> str:
        path = str(getattr(self._config, f"{name}_key_file"))
        if not path:
            return ""
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise KeyUnusable(
                f"the key file of provider {name} cannot be read: {path}: {reason}", path=path
            ) from error

    def _connections(self) -> "Transport":
        with self._lock:
            if self._transport is None:
                from bernstein_recorder.transport import Transport  # noqa: PLC0415 - costs 20 MB

                self._transport = Transport(
                    self._clock,
                    attempts=max(1, self._config.call_attempts),
                    seconds=self._config.call_timeout_seconds,
                )
            return self._transport


def _text_in(name: str, dialect: Dialect, body: bytes) -> str:
    try:
        text = dialect.text_in(parse_json(body))
    except InvalidInput as error:
        raise ProviderFailed(
            f"provider {name}: the answer is not JSON ({len(body)} bytes); is its base URL right?",
            provider=name,
        ) from error
    if text is None:
        raise ProviderFailed(
            f"provider {name}: the answer is JSON, but no model's answer; is its base URL right?",
            provider=name,
        )
    size = len(spelled(text))
    if size > limits.ANSWER_BYTES_MAX:
        raise ProviderFailed(
            f"provider {name}: the answer has {size} bytes, more than {limits.ANSWER_BYTES_MAX};"
            " ask for less with max_tokens",
            provider=name,
            limit=limits.ANSWER_BYTES_MAX,
        )
    return text


def _refusal(name: str, model: str, status: int, body: bytes) -> ProviderFailed:
    word = _error_word(body)
    said = f" ({word})" if word else ""
    return ProviderFailed(
        f"provider {name} answered {status}{said} for model {model[:80]!r}: {_advice(status)}",
        provider=name,
        status=status,
        error_type=word or None,
    )


def _advice(status: int) -> str:
    match status:
        case 401 | 403:
            return "check its key"
        case 404:
            return "check its base URL and the model's name"
        case 408 | 409 | 429:
            return "it is busy or its limit is reached; try again later, or ask for a higher limit"
        case _ if status in range(300, 400):
            return "it redirects; give the base URL it redirects to"
        case _ if status in range(400, 500):
            return "it does not take this request; check model, max_tokens and parameters"
    return "it has trouble of its own; try again later"


def _error_word(body: bytes) -> str:
    """The `code` or `type` in a provider's error, when it is one plain word."""
    try:
        answer = parse_json(body)
    except InvalidInput:
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    members = error if isinstance(error, dict) else {}
    for word in (members.get("code"), members.get("type")):
        if isinstance(word, str) and _ERROR_WORD.fullmatch(word[:_ERROR_WORD_CHARACTERS_MAX]):
            return word[:_ERROR_WORD_CHARACTERS_MAX]
    return ""
