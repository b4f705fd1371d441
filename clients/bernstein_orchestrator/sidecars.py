"""Where a program's wrapper writes down what the model provider did to the agent's context.

Rules: docs/formats/llm-record-replay.md, section 5. One file an attempt, emptied when it begins.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_formats.provider_sidecar import Signal, parse_sidecar

# Tells the wrapper where to write.
VARIABLE: Final = "BERNSTEIN_SVC_PROVIDER_STATE_FILE"
_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Observed:
    """What a wrapper saw; `failure` when that cannot be told."""

    signals: tuple[Signal, ...] = ()
    failure: str = ""


class Sidecars:
    """The files of one run, below the state folder, or below a replay's own."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._folder = folder.absolute() / "runtime" / "provider_state"
        self._run_id = run_id

    def begin(self, agent_id: str) -> Path | None:
        """Empty the attempt's file and name it; None where it cannot be made."""
        path = self._path(agent_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.touch(mode=0o600, exist_ok=False)
        except OSError:
            return None
        return path

    def observed(self, agent_id: str) -> Observed:
        """Read what was left behind, in the order in which it was seen."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path(agent_id), flags)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(_BYTES_MAX + 1)
        except OSError as error:
            return Observed(failure=type(error).__name__)
        if len(data) > _BYTES_MAX:
            return Observed(failure="TooLarge")
        return Observed(tuple(parse_sidecar(data)))

    def _path(self, agent_id: str) -> Path:
        return self._folder / f"{self._run_id}.{agent_id}.jsonl"
