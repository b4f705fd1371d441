"""How a tool or a model call failed, as a turn keeps it: an agent that goes on after a failure sees
the same failure in every replay.

The error that an agent gets is made of what is kept, when the turn is recorded, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ProviderFailed, ToolFailed

TEXT_CHARACTERS_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """The type's name, what it said, and in a model call's failure the facts about it."""

    kind: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception) -> Self:
        """What is kept of an error; text that UTF-8 does not have is replaced."""
        facts = error.metadata if isinstance(error, ProviderFailed) else {}
        return cls(
            type(error).__name__,
            _kept(_said(error)),
            {name: _kept(each) for name, each in facts.items()},
        )

    def payload(self) -> dict[str, JsonValue]:
        return {"type": self.kind, "text": self.text, "facts": dict(self.facts)}

    def of_tool(self, name: str) -> ToolFailed:
        """The error that an agent gets when a tool failed."""
        return ToolFailed(
            f"tool {name!r} failed: {self.kind}: {self.text}",
            tool=name,
            error_type=self.kind,
            error_text=self.text,
        )

    def of_provider(self) -> ProviderFailed:
        """The error that an agent gets when a model call failed."""
        error = ProviderFailed(self.text)
        error.metadata.update(self.facts)
        return error


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a text that somebody else's class fails to make
        return ""


def _kept(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX].encode("utf-8", "replace").decode()
