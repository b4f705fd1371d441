"""Why a request has no recorded answer: never recorded, used up, or changed, and in which field.

The peer says the same of all three (field cases F01 to F03).
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput, ReplayMissError
from bernstein_formats.llm_calls import CallRequest, call_key, max_tokens_text, temperature_text

_SHOWN_CHARACTERS: Final = 60
_SHOWN_DIGEST: Final = 12
_NO_DIFFERENCE: Final = ()


class MissKind(StrEnum):
    """What a miss is due to."""

    NEVER_RECORDED = "never_recorded"
    USED_UP = "used_up"
    CHANGED = "changed"


REMEDY: Final = (
    "To record it, run with BERNSTEIN_DETERMINISTIC_SEED set and BERNSTEIN_REPLAY_RUN_ID unset; to"
    " let unrecorded calls go to the live model, set BERNSTEIN_REPLAY_ALLOW_LIVE_MISS=1."
)
# In a session with a mode, where those variables say nothing.
REMEDY_WITH_MODE: Final = (
    "Record it again with what is asked for now; a strict replay asks no model."
)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What a row tells about its request; `line` counts from 1."""

    line: int
    key: str
    model: str
    provider: str
    temperature: str
    max_tokens: str
    prompt_len: int | None
    prompt_sha256: str
    lane: str
    parameters: Mapping[str, JsonValue]

    def text(self) -> str:
        digest = f" (sha256 {self.prompt_sha256[:_SHOWN_DIGEST]})" if self.prompt_sha256 else ""
        return (
            f"line {self.line}: model {_shown(self.model)}, provider {_shown(self.provider)},"
            f" temperature {self.temperature[:_SHOWN_CHARACTERS]},"
            f" max_tokens {self.max_tokens[:_SHOWN_CHARACTERS]},"
            f" prompt of {self.prompt_len} characters{digest}"
            + (f", asked by {_shown(self.lane)}" if self.lane else "")
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which the request is not the recorded one; both values as text."""

    field: str
    recorded: str
    asked: str
    note: str = ""

    def text(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"{self.field} (recorded {self.recorded}, asked {self.asked}{note})"


@dataclass(frozen=True, slots=True)
class Miss:
    """A request without an answer. `recorded_count` answers were there for it, all of them used."""

    kind: MissKind
    key: str
    model: str
    recorded_count: int = 0
    nearest: RecordedCall | None = None
    differences: tuple[Difference, ...] = _NO_DIFFERENCE

    def text(self, where: str = "llm_calls.jsonl", remedy: str = REMEDY) -> str:
        """Say it for a person; `where` names the recording."""
        start = f"Deterministic replay miss: no recorded response for model={self.model!r}"
        parts = [f"{start} (key={self.key}) in {where}.", self._cause()]
        if self.nearest is not None:
            parts.append(f"Nearest recorded call, {self.nearest.text()}.")
        return " ".join([*parts, remedy])

    def _cause(self) -> str:
        if self.kind is MissKind.USED_UP:
            count = self.recorded_count
            return f"The key is known, and {count} of {count} recorded answers are already used."
        if self.kind is MissKind.CHANGED:
            return f"The request has changed: {self._differing()}."
        if self.differences:
            return (
                f"It was never recorded; from the nearest call it differs in {self._differing()}."
            )
        return "It was never recorded."

    def _differing(self) -> str:
        return ", ".join(each.text() for each in self.differences)

    def error(self, where: str = "llm_calls.jsonl", remedy: str = REMEDY) -> ReplayMissError:
        nearest = self.nearest
        return ReplayMissError(
            self.text(where, remedy),
            kind=self.kind,
            key=self.key,
            model=self.model,
            recorded_count=self.recorded_count,
            differing_fields=", ".join(each.field for each in self.differences) or None,
            nearest_line=nearest.line if nearest else None,
        )


def recorded_call(row: dict[str, JsonValue], line: int) -> RecordedCall:
    """Read a row for comparison, whatever types it holds."""
    prompt_len = row.get("prompt_len")
    parameters = row.get("parameters")
    return RecordedCall(
        line=line,
        key=str(row.get("key")),
        model=str(row.get("model")),
        provider=str(row.get("provider")),
        temperature=temperature_text(row.get("temperature")),
        max_tokens=max_tokens_text(row.get("max_tokens")),
        prompt_len=prompt_len if isinstance(prompt_len, int) else None,
        prompt_sha256=str(row.get("prompt_sha256", "")),
        lane=str(row.get("lane", "")),
        parameters=parameters if isinstance(parameters, dict) else {},
    )


def explain_unknown(
    key: str, asked: CallRequest, lane: str, recorded: Iterable[RecordedCall]
) -> Miss:
    """Explain a key that was never recorded by the nearest call.

    Nearest is the one with the fewest differing fields; then one whose prompt is the same, one of
    the caller's own lane, the one whose prompt is nearest in length, and the first.
    """
    nearest: RecordedCall | None = None
    differences: tuple[Difference, ...] = _NO_DIFFERENCE
    best = (0, False, False, 0)
    for call in recorded:
        found = find_differences(asked, call)
        score = (
            len(found),
            any(each.field == "prompt" for each in found),
            call.lane != lane,
            abs(len(asked.prompt) - (call.prompt_len or 0)),
        )
        if nearest is None or score < best:
            nearest, differences, best = call, found, score
    same_prompt = nearest is not None and not best[1]
    kind = MissKind.CHANGED if same_prompt and differences else MissKind.NEVER_RECORDED
    return Miss(kind, key, asked.model, 0, nearest, differences)


def find_differences(asked: CallRequest, recorded: RecordedCall) -> tuple[Difference, ...]:
    """List the fields in which a request differs from a recorded one."""
    found = [
        Difference(name, _shown(was), _shown(now))
        for name, was, now in (
            ("model", recorded.model, asked.model),
            ("provider", recorded.provider, asked.provider),
        )
        if was != now
    ]
    found.extend(
        Difference(name, was[:_SHOWN_CHARACTERS], now[:_SHOWN_CHARACTERS], _spelling_note(was, now))
        for name, was, now in (
            ("temperature", recorded.temperature, asked.temperature),
            ("max_tokens", recorded.max_tokens, asked.max_tokens),
        )
        if was != now
    )
    if not _same_prompt(asked, recorded):
        found.append(
            Difference(
                "prompt",
                f"{recorded.prompt_len} characters",
                f"{len(asked.prompt)} characters, sha256 {_digest_start(asked.prompt)}",
            )
        )
    found.extend(find_parameter_differences(asked.parameters, recorded.parameters))
    return tuple(found)


def find_parameter_differences(
    asked: Mapping[str, JsonValue], recorded: Mapping[str, JsonValue]
) -> list[Difference]:
    """List the further request fields that differ, by name; 1 and 1.0 are the same."""
    return [
        Difference(name, _member(recorded, name), _member(asked, name))
        for name in sorted({*asked, *recorded})
        if _canonical_member(asked, name) != _canonical_member(recorded, name)
    ]


def _same_prompt(asked: CallRequest, recorded: RecordedCall) -> bool:
    """Tell without the recorded prompt: with it, the row's other fields give the row's key."""
    if recorded.prompt_len is not None and recorded.prompt_len != len(asked.prompt):
        return False
    try:
        key = call_key(
            recorded.model,
            asked.prompt,
            recorded.provider,
            recorded.temperature,
            recorded.max_tokens,
        )
    except InvalidInput:
        return False
    return key == recorded.key


def _spelling_note(was: str, now: str) -> str:
    """Say when two texts differ, but not as numbers (field case F03)."""
    try:
        recorded, asked = float(was), float(now)
    except ValueError:
        return ""
    if recorded == asked:
        return "the same number in another spelling; the key is made from the spelling"
    if _as_float32(recorded) == asked or _as_float32(asked) == recorded:
        return "the same number after a 32-bit float; send the text or a 64-bit float"
    return ""


def _as_float32(value: float) -> float | None:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(rounded)


def _member(members: Mapping[str, JsonValue], name: str) -> str:
    return _shown(members[name]) if name in members else "nothing"


def _canonical_member(members: Mapping[str, JsonValue], name: str) -> bytes | None:
    if name not in members:
        return None
    try:
        return canonical_bytes(members[name], Profile.JCS)
    except InvalidInput:
        return canonical_bytes(members[name], Profile.PY_JSON)


def _shown(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _digest_start(prompt: str) -> str:
    return sha256(prompt.encode()).hexdigest()[:_SHOWN_DIGEST]
