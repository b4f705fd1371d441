"""What a turn needs of the world: somebody who answers model calls, and a ledger for its row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bernstein_formats.canonical import JsonValue
from bernstein_formats.fingerprint import (
    FingerprintInput,
    FingerprintMetadata,
    temperature_bucket,
)
from bernstein_formats.llm_calls import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_TEMPERATURE,
    literal_value,
)
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
        temperature = literal_value(settings.temperature, "temperature")
        max_tokens = literal_value(settings.max_tokens, "max_tokens")
        return FingerprintInput(
            family=settings.family or settings.provider,
            model=settings.model,
            call_class=self.call_class,
            runtime_mode=mode,
            messages=({"role": "user", "content": self.prompt},),
            version=version,
            temperature_bucket=None if temperature is None else temperature_bucket(temperature),
            seed=seed,
            max_tokens=max_tokens if type(max_tokens) is int else None,
            provider=settings.provider,
            parameters=settings.parameters,
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
