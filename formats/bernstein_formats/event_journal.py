"""The per-run event journal: a row's hashes, and the bytes of the next row.

Rules: docs/formats/event-journal.md, sections 3 and 4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from bernstein_formats.canonical import (
    JsonValue,
    Profile,
    canonical_bytes,
    judge,
    judged_bytes,
    parse_json,
    parse_loosely,
    spelled,
    spelled_members,
)
from bernstein_formats.errors import InvalidInput

# Written by the journal and no part of the payload hash.
ENVELOPE_NAMES = ("ts", "elapsed_s", "index", "prev_hash", "payload_hash", "event_hash")
# A payload with one of these would overwrite the row's own member.
RESERVED_NAMES = frozenset((*ENVELOPE_NAMES, "event", "hash_profile"))

_JCS = Profile.JCS


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where the next row goes: its index and the hash of the row before it (none: empty)."""

    index: int = 0
    head_hash: str = ""
    profile: Profile = Profile.PY_JSON


START = ChainHead()


def payload_hash(row: dict[str, JsonValue], event: str, profile: Profile) -> str:
    """Hash a row's members other than the envelope, together with its event type."""
    projected = {name: value for name, value in row.items() if name not in ENVELOPE_NAMES}
    projected["event"] = event
    return sha256(canonical_bytes(projected, profile)).hexdigest()


def event_hash(prev_hash: str, event: str, payload_hex: str, index: int, profile: Profile) -> str:
    """Hash a link of the chain; both hashes given are hex text (or empty, at the start)."""
    event_text = canonical_bytes(event, profile)
    return sha256(link_bytes(prev_hash, event_text, payload_hex, index)).hexdigest()


def link_bytes(prev_hash: str, event_text: bytes, payload_hex: str, index: int) -> bytes:
    """Write what `event_hash` hashes; `event_text` is the event type in canonical form."""
    return b'{"event_type":%b,"index":%d,"payload_hash":"%b","prev_hash":"%b"}' % (
        event_text,
        index,
        payload_hex.encode(),
        prev_hash.encode(),
    )


def next_row(
    head: ChainHead, event: str, payload: bytes | dict[str, JsonValue], ts: float, elapsed_s: float
) -> tuple[bytes, ChainHead]:
    """Make the next row (without its LF) and the head after it.

    `payload` is an object, as JSON text or parsed. NaN and the infinities are refused: other
    readers would not take them for JSON.
    """
    members, write = _parsed(payload, head.profile)
    if not RESERVED_NAMES.isdisjoint(members):
        raise _reserved(members)
    text = spelled_members(members)
    event_text = spelled(event)
    canonical_event = event_text.encode()
    members["event"] = event
    index, prev_hash, profile = head.index, head.head_hash, head.profile
    if profile is _JCS:
        members["hash_profile"] = "jcs-v2"
        text = f'"hash_profile": "jcs-v2", {text}' if text else '"hash_profile": "jcs-v2"'
        canonical_event = canonical_bytes(event, profile)
    payload_hex = sha256(write(members)).hexdigest()
    event_hex = sha256(link_bytes(prev_hash, canonical_event, payload_hex, index)).hexdigest()
    line = (
        f'{{"ts": {ts!r}, "elapsed_s": {elapsed_s!r}, "index": {index}, "event": {event_text},'
        f' "prev_hash": "{prev_hash}", "payload_hash": "{payload_hex}",'
        f' "event_hash": "{event_hex}"{", " if text else ""}{text}}}'
    )
    return line.encode(), ChainHead(index + 1, event_hex, profile)


def _parsed(
    payload: bytes | dict[str, JsonValue], profile: Profile
) -> tuple[dict[str, JsonValue], Callable[[JsonValue], bytes]]:
    """Give the payload's members, ours to change, and the function that writes them."""
    if not isinstance(payload, bytes):
        return payload.copy(), partial(canonical_bytes, profile=profile)
    members = parse_loosely(payload)
    if not isinstance(members, dict):
        raise InvalidInput("a payload must be a JSON object; put the value into a member of one")
    if not judge(profile)(members.values()):
        exact = parse_json(payload)
        assert isinstance(exact, dict)
        return exact, partial(canonical_bytes, profile=profile)
    return members, judged_bytes(profile)


def _reserved(members: dict[str, JsonValue]) -> InvalidInput:
    taken = next(name for name in members if name in RESERVED_NAMES)
    return InvalidInput(
        f"the payload has a member {taken!r}, which is the row's own; rename it", member=taken
    )
