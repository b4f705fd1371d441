"""A line of `answers/<mode>.jsonl`: an answer by its fingerprint, kept for calls to come.

Rules: docs/formats/determinism.md, section 5. It is a cache: whatever can't be read is passed over,
and the call is made again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json, spelled
from bernstein_formats.errors import InvalidInput, ReplayDivergenceError
from bernstein_formats.fingerprint import (
    COMPONENTS,
    Fingerprint,
    FingerprintInput,
    differing_components,
    shown_facts,
)
from bernstein_formats.modes import RuntimeMode

ANSWERS_FOLDER: Final = "answers"
# What differs where the provider of that name was somewhere else.
ADDRESS: Final = "address"
_SHOWN_CHARACTERS: Final = 60
_SHOWN_DIGEST: Final = 15


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer and what it answers; `facts` are the components that can be told in plain words."""

    composite: str
    # Of the base URL of the provider that gave it.
    address_sha256: str
    components: Mapping[str, str]
    facts: Mapping[str, JsonValue]
    run_id: str
    response: JsonValue


def answers_path(mode: RuntimeMode) -> str:
    """Name the file of one mode's answers, relative to the state folder."""
    return f"{ANSWERS_FOLDER}/{mode.value}.jsonl"


def address_digest(address: str) -> str:
    """SHA-256 of a provider's base URL, in hex: the URL itself may be somebody's secret."""
    return sha256(address.encode()).hexdigest()


def answer_line(
    key: FingerprintInput,
    fingerprint: Fingerprint,
    address: str,
    response: str,
    *,
    run_id: str,
    ts: float,
) -> bytes:
    """Write a line, line feed included."""
    row: dict[str, JsonValue] = {
        "ts": ts,
        "fingerprint": fingerprint.composite,
        "address_sha256": address_digest(address),
        "components": dict(fingerprint.components),
        "facts": shown_facts(key),
        "run_id": run_id,
        "response": response,
    }
    return spelled(row).encode("ascii") + b"\n"


def parse_answer(line: bytes) -> StoredAnswer | None:
    """Read a line; None where it holds no answer."""
    try:
        row = parse_json(line)
    except InvalidInput:
        return None
    match row:
        case {
            "fingerprint": str() as composite,
            "address_sha256": str() as address,
            "components": dict() as components,
            "facts": dict() as facts,
            "run_id": str() as run_id,
            "response": response,
        } if composite:
            texts = {name: each for name, each in components.items() if isinstance(each, str)}
            return StoredAnswer(composite, address, texts, facts, run_id, response)
    return None


def divergence(
    key: FingerprintInput,
    asked: Fingerprint,
    address: str | None,
    stored: Iterable[StoredAnswer],
) -> ReplayDivergenceError:
    """Say that nothing is stored for a call, what comes nearest, and in which fields it differs.

    Nearest is what differs in the fewest components; the mode never counts, since each store has
    its own. No text of a prompt is ever told.
    """
    digest = address_digest(address) if address else ""
    nearest: StoredAnswer | None = None
    differing: tuple[str, ...] = COMPONENTS
    for each in stored:
        found = _without_mode(differing_components(asked.components, each.components))
        # Without an address, what is equal was no answer only because several have given one.
        elsewhere = each.address_sha256 != digest if digest else not found
        if elsewhere:
            found = (*found, ADDRESS)
        if len(found) < len(differing):
            nearest, differing = each, found
    told = _told(key, nearest, differing) if nearest else "nothing at all is stored"
    return ReplayDivergenceError(
        f"miss: nothing is stored for the fingerprint {asked.composite}; {told}. Ask for it once in"
        " the mode interactive or headless-eval to have it stored",
        kind="miss",
        mode=key.runtime_mode,
        fingerprint=asked.composite,
        nearest=nearest.composite if nearest else None,
        nearest_run_id=nearest.run_id if nearest else None,
        differing_fields=", ".join(differing) if nearest else None,
    )


def changed_call(
    key: FingerprintInput, asked: Fingerprint, recorded: Mapping[str, JsonValue], line: int
) -> ReplayDivergenceError:
    """Say that the recorded call of this key has another fingerprint, and in which fields."""
    facts = shown_facts(key)
    given = recorded.get("facts")
    was = given if isinstance(given, dict) else {}
    names = tuple(name for name in COMPONENTS if facts.get(name) != was.get(name))
    differing = _without_mode(names) or ("composite",)
    kind = "version" if differing == ("version",) else "fingerprint"
    fields = ", ".join(_field(name, was.get(name), facts.get(name)) for name in differing)
    return ReplayDivergenceError(
        f"{kind}: the call recorded on line {line} differs in {fields}; its fingerprint is"
        f" {recorded.get('fingerprint')}, that of the call asked for is {asked.composite}."
        " Replay with what recorded it, or record again",
        kind=kind,
        mode=key.runtime_mode,
        fingerprint=asked.composite,
        nearest=recorded.get("fingerprint"),
        nearest_line=line,
        differing_fields=", ".join(differing),
    )


def _told(key: FingerprintInput, nearest: StoredAnswer, differing: tuple[str, ...]) -> str:
    facts = shown_facts(key)
    fields = ", ".join(_field(name, nearest.facts.get(name), facts.get(name)) for name in differing)
    start = nearest.composite[:_SHOWN_DIGEST]
    return f"the nearest, {start} of run {nearest.run_id}, differs in {fields or 'nothing else'}"


def _field(name: str, was: JsonValue, now: JsonValue) -> str:
    if was is None and now is None:
        return name
    return f"{name} (stored {_shown(was)}, asked {_shown(now)})"


def _shown(value: JsonValue) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _without_mode(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name != "mode")
