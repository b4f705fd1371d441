"""The hash chain that re-derivation computes anew, and where the recorded rows tell otherwise."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import (
    JsonValue,
    Profile,
    canonical_bytes,
    judge,
    judged_bytes,
)
from bernstein_formats.errors import InvalidInput
from bernstein_formats.event_journal import link_bytes
from bernstein_formats.journal_reader import Row

_LISTED_NOTES: Final = 20
# Event types of this size, and so many, are kept in canonical form.
_USUAL_EVENT_SIZE: Final = 100
_USUAL_EVENT_COUNT: Final = 500


@dataclass(frozen=True, slots=True)
class ChainNote:
    """A row whose stored copy of a chain member is not what its content gives."""

    index: int
    member: str


class DerivedChain:
    """The hashes over the accepted rows, and where the stored ones differ from them."""

    def __init__(self) -> None:
        self.head = ""
        self.given_up = False
        self.difference: tuple[int | None, str] | None = None
        self.notes: list[ChainNote] = []
        self.note_count = 0
        self.event_texts: dict[str, bytes] = {}  # in canonical form, of the usual event types
        self._use(Profile.PY_JSON)

    def _use(self, profile: Profile) -> None:
        self._profile = profile
        self.judge, self.write = judge(profile), judged_bytes(profile)

    def declare(self, first: Row) -> None:
        """Take the journal's hash profile from its first row."""
        name = str(first.get("hash_profile", Profile.PY_JSON.value))
        try:
            self._use(Profile(name))
        except ValueError:
            self._give_up(None, f"row 0 declares the unknown hash_profile {name!r}")

    def event_text(self, event: str) -> bytes:
        """Write an event type; the usual ones are kept."""
        text = canonical_bytes(event, self._profile)
        if len(event) <= _USUAL_EVENT_SIZE and len(self.event_texts) < _USUAL_EVENT_COUNT:
            self.event_texts[event] = text
        return text

    def _give_up(self, index: int | None, reason: str) -> None:
        """Go on without hashes: a later step against the rules still outranks the mismatch."""
        self.given_up = True
        self.head = ""
        self.difference = self.difference or (index, reason)

    def add(self, index: int, event: str, row: Row) -> None:
        """Chain an exactly parsed row."""
        if self.given_up:
            return
        if row.get("event") != event:
            self._differ(index, event, row)
        stored = take_envelope(row)
        row["event"] = event
        try:
            payload_hex = sha256(canonical_bytes(row, self._profile)).hexdigest()
            event_text = self.event_text(event)
        except InvalidInput as error:
            what = f"event #{index} has no hash under {self._profile}: {error.message}"
            self._give_up(index, what)
            return
        head = self.head
        self.head = sha256(link_bytes(head, event_text, payload_hex, index)).hexdigest()
        self.compare(event, row, stored, (index, head, payload_hex, self.head))

    def compare(
        self,
        event: str,
        payload: Row,
        stored: tuple[JsonValue, ...],
        derived: tuple[int, str, str, str],
    ) -> None:
        """Note each chain member that is stored otherwise."""
        members = "index", "prev_hash", "payload_hash", "event_hash"
        for member, was, should_be in zip(members, stored, derived, strict=True):
            if was == should_be:
                continue
            if member == "payload_hash":
                self._differ(derived[0], event, payload)
            self.note_count += 1
            if self.note_count <= _LISTED_NOTES:
                self.notes.append(ChainNote(derived[0], member))

    def _differ(self, index: int, event: str, payload: Row) -> None:
        if self.difference is not None:
            return
        reason = f"event #{index} differs: kind/key/response triple does not match"
        if event == "provider_state_mutation":
            kind = payload.get("mutation_kind") or "unknown"
            reason = f"event #{index}: provider-side context mutation ({kind}) does not match"
        self.difference = index, reason


def take_envelope(row: Row) -> tuple[JsonValue, ...]:
    """Remove what the payload hash does not cover; return the members that the chain gives."""
    take = row.pop
    take("ts", None)
    take("elapsed_s", None)
    return (
        take("index", None),
        take("prev_hash", None),
        take("payload_hash", None),
        take("event_hash", None),
    )
