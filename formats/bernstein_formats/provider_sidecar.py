"""What an agent's wrapper saw its provider do to the context, and the journal rows made of it.

Rules: docs/formats/llm-record-replay.md, section 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json
from bernstein_formats.errors import InvalidInput
from bernstein_formats.provider_state import MUTATION, content_address

CAPTURE_FAILED = "provider_state_capture_failed"
Event = tuple[str, dict[str, JsonValue]]
_BEFORE_PREFIXES = ("pre_", "before_")


@dataclass(frozen=True, slots=True)
class Signal:
    """One observation, in the order in which they were made."""

    kind: str
    detail: dict[str, JsonValue]


def parse_sidecar(data: bytes) -> list[Signal]:
    """The observations of a sidecar file; lines that hold none are passed over."""
    signals = []
    for line in data.splitlines():
        try:
            row = parse_json(line.strip())
        except InvalidInput:
            continue
        if isinstance(row, dict) and row.get("kind"):
            signals.append(signal_of(row))
    return signals


def signal_of(row: dict[str, JsonValue]) -> Signal:
    """The observation in an object, whatever is in it."""
    detail = row.get("detail")
    return Signal(str(row.get("kind") or "unknown"), detail if isinstance(detail, dict) else {})


def mutation_events(
    signals: Sequence[Signal], agent_id: str, *, is_deterministic: bool
) -> list[Event]:
    """The journal rows of one session; in a deterministic mode each of them fails verification."""
    return [
        mutation_event(signal, step_index, agent_id, is_flagged=is_deterministic)
        for step_index, signal in enumerate(signals)
    ]


def mutation_event(signal: Signal, step_index: int, agent_id: str, *, is_flagged: bool) -> Event:
    """The row of one observation."""
    return MUTATION, _members(signal, step_index, agent_id, is_flagged=is_flagged)


def capture_failed_event(agent_id: str, reason: str) -> Event:
    """The row that says that observations were lost."""
    return CAPTURE_FAILED, {"agent_id": agent_id, "reason": reason}


def _members(
    signal: Signal, step_index: int, agent_id: str, *, is_flagged: bool
) -> dict[str, JsonValue]:
    before = {
        name: value for name, value in signal.detail.items() if name.startswith(_BEFORE_PREFIXES)
    }
    before_digest, after_digest = _digest(before), _digest(signal.detail)
    return {
        "mutation_kind": signal.kind,
        "before_digest": before_digest,
        "after_digest": after_digest,
        "step_index": step_index,
        "content_address": content_address(signal.kind, before_digest, after_digest, step_index),
        "flagged": is_flagged,
        "agent_id": agent_id,
    }


def _digest(value: JsonValue) -> str:
    return sha256(canonical_bytes(value, Profile.PY_JSON)).hexdigest()
