"""What a turn needs of the world: somebody who answers model calls, and a ledger for its row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bernstein_formats.call_fingerprint import key_of_call, seeded
from bernstein_formats.canonical import JsonValue
from bernstein_formats.fingerprint import FingerprintInput, FingerprintMetadata
from bernstein_formats.llm_calls import DEFAULT_MAX_TOKENS, DEFAULT_TEMPERATURE, CallRequest
from bernstein_formats.modes import RuntimeMode


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, and how; temperature and limit are literal texts (`0.7`, `None`)."""

    model: str
    provider: str
    # Empty: the provider's name.
    family: str = ""
    temperature: str = DEFAULT_TEMPERATURE
    max_tokens: str = DEFAULT_MAX_TOKENS
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """One model call on its way: what decides the answer, and the lane that it belongs to."""

    settings: ModelSettings
    call_class: str
    prompt: str
    lane: str
    # Who and when; no part of the key.
    metadata: FingerprintMetadata = field(default_factory=FingerprintMetadata)

    def key(self, mode: RuntimeMode, version: str, seed: int | None) -> FingerprintInput:
        """What its fingerprint is made of, as the recorder makes it. Raises InvalidInput."""
        settings = self.settings
        call = CallRequest(
            model=settings.model,
            prompt=self.prompt,
            provider=settings.provider,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            parameters=settings.parameters,
        )
        return key_of_call(
            seeded(call, seed), mode, version, family=settings.family, call_class=self.call_class
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, where it came from, and the fingerprint that whoever answered made."""

    text: str
    # "live", "cached" or "recorded".
    source: str
    stored_mode: RuntimeMode
    composite: str
    call_key: str = ""


class Answers(Protocol):
    """Answers model calls in one mode. Safe for any number of threads."""

    @property
    def seed(self) -> int | None:
        """The session's seed, which is part of every fingerprint."""
        ...

    def ask(self, question: Question) -> Answered:
        """Raises ReplayDivergenceError where a replay has no answer, ProviderFailed."""
        ...


class Ledger(Protocol):
    """Takes audit rows."""

    def append(self, event: str, payload: Mapping[str, JsonValue]) -> None:
        """Durable when it returns."""
        ...
