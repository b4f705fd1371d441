"""What all turns of a runtime share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bernstein_determinism.channels import Reducer
from bernstein_determinism.observers import Observers
from bernstein_determinism.ports import Answers, ModelSettings
from bernstein_formats.errors import InvalidInput
from bernstein_formats.modes import RuntimeMode


def measure_characters(text: str) -> int:
    """Tokens of a text, roughly: one for four characters. Pure, and the same for every model."""
    return (len(text) + 3) // 4


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A runtime's answers, mode, version, model, channels, observers and measure of texts."""

    answers: Answers
    mode: RuntimeMode
    # The package's and the agent's, as it enters fingerprints.
    version: str
    model: ModelSettings
    channels: Mapping[str, Reducer[Any]]
    observers: Observers
    measure: Callable[[str], int] = measure_characters

    def reducer(self, channel: str) -> Reducer[Any]:
        """Raises InvalidInput for a channel that nobody declared."""
        if channel not in self.channels:
            known = ", ".join(sorted(self.channels)) or "none"
            raise InvalidInput(f"there is no channel {channel!r}; known: {known}", channel=channel)
        return self.channels[channel]
