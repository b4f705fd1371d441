"""The five operating modes, and which of them may be answered from what another one stored.

Rules: docs/formats/determinism.md, section 4. Data flows along one arrow only, interactive →
headless-eval → headless-replay; whatever is stored is stored under the mode that made it.
"""

from enum import StrEnum
from typing import Final

from bernstein_formats.errors import InvalidInput


class RuntimeMode(StrEnum):
    """What a runtime is for; it decides what a miss does and who may read the answers."""

    INTERACTIVE = "interactive"
    HEADLESS_EVAL = "headless-eval"
    HEADLESS_REPLAY = "headless-replay"
    HEADLESS_JOB = "headless-job"
    CODING_AGENT = "coding-agent"

    @property
    def is_hermetic(self) -> bool:
        """Whether it never asks a model and stores nothing."""
        return self is RuntimeMode.HEADLESS_REPLAY

    @property
    def needs_seed(self) -> bool:
        """Whether the seed is pinned when a session begins."""
        return self is RuntimeMode.HEADLESS_EVAL


_ARROW: Final = (
    RuntimeMode.INTERACTIVE,
    RuntimeMode.HEADLESS_EVAL,
    RuntimeMode.HEADLESS_REPLAY,
)


def readable_modes(mode: RuntimeMode) -> tuple[RuntimeMode, ...]:
    """The modes whose answers a mode may be given: its own first, then the nearest."""
    if mode not in _ARROW:
        return (mode,)
    return tuple(reversed(_ARROW[: _ARROW.index(mode) + 1]))


def may_replay(mode: RuntimeMode | None, recorded: RuntimeMode | None) -> bool:
    """Whether a call recorded in `recorded` may answer a session of `mode`; None is no mode.

    headless-replay may read any: it stores nothing that could flow on. Calls without a mode answer
    sessions without one, and no other: nobody knows what they were made for.
    """
    if mode is None or recorded is None:
        return mode is recorded or mode is RuntimeMode.HEADLESS_REPLAY
    return mode.is_hermetic or recorded in readable_modes(mode)


def parse_mode(text: str) -> RuntimeMode:
    """The mode of this name. Raises InvalidInput."""
    try:
        return RuntimeMode(text)
    except ValueError:
        known = ", ".join(RuntimeMode)
        raise InvalidInput(f"{text[:40]!r} is no mode: use one of {known}", field="mode") from None
