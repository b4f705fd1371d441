"""The journal rows of a receipt, one at a time: their chain, and what the signature says of them.

The builder and the verifier go through the same code, row by row, and keep nothing of a row.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import ChainBroken, InvalidInput
from bernstein_formats.event_journal import link_bytes
from bernstein_formats.journal_reader import Row
from bernstein_formats.receipt_lines import Write
from bernstein_formats.run_receipt import Endpoint

_PY_JSON: Final = Profile.PY_JSON  # looking a member up costs as much as hashing some
_EXTENSION_SCHEMA: Final = "1.0.0"
BOUND_EVENTS: Final = frozenset({"agent_spawned", "loaded_extension_set"})
_BOUND_EVENTS: Final = frozenset({b'"agent_spawned"', b'"loaded_extension_set"'})
# What is left of a row whose payload was withheld, besides its envelope.
WITHHELD_MEMBER: Final = "payload_withheld"
_WITHHELD_MEMBERS: Final = frozenset({"event", WITHHELD_MEMBER})
_HASH: Final = re.compile(r"[0-9a-f]{64}")
# Event types of this size, and so many, are kept in canonical form.
_USUAL_EVENT_SIZE: Final = 100
_USUAL_EVENT_COUNT: Final = 500


class FindingReason(StrEnum):
    """What a finding is about; the words of a journal's own verification where it has them."""

    INDEX_WRONG = "index_wrong"
    PAYLOAD_HASH_WRONG = "payload_hash_wrong"
    CLOCK_MEMBER = "clock_member"
    UNKNOWN_MEMBER = "unknown_member"
    UNSIGNED_VALUE_WRONG = "unsigned_value_wrong"
    RUN_UNEXPECTED = "run_unexpected"


@dataclass(frozen=True, slots=True)
class ReceiptFinding:
    """What must not pass although the signature holds, at a row or entry from 0, or at none."""

    reason: FindingReason
    index: int | None
    member: str


class EventWalk:
    """Follows a journal's rows: hashes by position, link, and the facts bound beside the head."""

    __slots__ = (
        "_event_texts",
        "_takes_withheld",
        "count",
        "endpoints",
        "extension_set_digest",
        "findings",
        "head",
        "profile",
        "withheld_count",
    )

    def __init__(self, *, takes_withheld: bool = False) -> None:
        """`takes_withheld`: rows may come without their payload, as withholding.py leaves them."""
        self._takes_withheld = takes_withheld
        self.withheld_count = 0
        self.count = 0
        self.head = ""
        self.profile = Profile.PY_JSON
        self.findings: list[ReceiptFinding] = []
        self.endpoints: set[Endpoint] = set()
        self.extension_set_digest: str | None = None
        self._event_texts: dict[str, bytes] = {}

    def add(self, row: Row, write: Write) -> None:
        """Check the next row, which has no clock members; ChainBroken names its position.

        `write` must give the row's py-json-v1 bytes. The row loses its envelope members here.
        """
        count, take = self.count, row.pop
        if not count and "hash_profile" in row:
            self.profile = _profile_of(row["hash_profile"])
        index, prev_hash = take("index", None), take("prev_hash", None)
        payload_hash, event_hash = take("payload_hash", None), take("event_hash", None)
        if prev_hash != self.head:
            raise self._broken("does not follow the row before it", "link")
        event_text = self._event_texts.get(row.get("event")) or self._new_event_text(row)  # type: ignore[arg-type]  # a key of another type is not found
        payload = write(row) if self.profile is _PY_JSON else self._canonical(row)
        payload_hex = sha256(payload).hexdigest()
        head = sha256(link_bytes(self.head, event_text, payload_hex, count)).hexdigest()
        if event_hash != head:
            stated_head = self._withheld_head(row, event_text, payload_hash)
            if event_hash != stated_head:
                raise self._broken(f"does not hash to its event_hash but to {head}", "hash")
            head, payload_hex = stated_head, str(payload_hash)
            self.withheld_count += 1
        if index != count or type(index) is not int:
            self.findings.append(ReceiptFinding(FindingReason.INDEX_WRONG, count, "index"))
        if payload_hash != payload_hex:
            reason = FindingReason.PAYLOAD_HASH_WRONG
            self.findings.append(ReceiptFinding(reason, count, "payload_hash"))
        if event_text in _BOUND_EVENTS:
            self._bind(row)
        self.head = head
        self.count = count + 1

    def _withheld_head(self, row: Row, event_text: bytes, payload_hash: JsonValue) -> str:
        """The hash of a row that came without its payload; "" if it is no such row.

        A row whose real payload looks like that mark hashes to its event_hash, and is none.
        """
        if not self._takes_withheld or row.keys() != _WITHHELD_MEMBERS:
            return ""
        if row[WITHHELD_MEMBER] is not True or not isinstance(payload_hash, str):
            return ""
        if not _HASH.fullmatch(payload_hash):
            return ""
        link = link_bytes(self.head, event_text, payload_hash, self.count)
        return sha256(link).hexdigest()

    def _new_event_text(self, row: Row) -> bytes:
        event = row.get("event")
        if not isinstance(event, str) or not event:
            raise self._broken("has no event type", "hash")
        text = self._canonical(event)
        if len(event) <= _USUAL_EVENT_SIZE and len(self._event_texts) < _USUAL_EVENT_COUNT:
            self._event_texts[event] = text
        return text

    def _canonical(self, value: JsonValue) -> bytes:
        try:
            return canonical_bytes(value, self.profile)
        except InvalidInput as error:
            raise self._broken(f"has no canonical bytes: {error.message}", "hash") from error

    def _bind(self, row: Row) -> None:
        if row["event"] == "loaded_extension_set":
            digest = _extension_set_digest(row.get("extensions"))
            self.extension_set_digest = digest or self.extension_set_digest
        elif row.get("endpoint_adapter_name"):
            self.endpoints.add(
                Endpoint(
                    adapter=_text(row["endpoint_adapter_name"]),
                    model=_text(row.get("endpoint_model")),
                    base_url=_text(row.get("endpoint_base_url")),
                    profile=_text(row.get("endpoint_profile_name")),
                )
            )

    def _broken(self, what: str, check: str) -> ChainBroken:
        return ChainBroken(
            f"journal row {self.count} {what}", substrate="journal", step=self.count, check=check
        )


def _profile_of(name: JsonValue) -> Profile:
    if name not in [profile.value for profile in Profile]:
        raise ChainBroken(
            f"the journal's first row states the unknown hash_profile {name!r:.80}",
            substrate="journal", check="profile",
        )  # fmt: skip
    return Profile(name)


def _text(value: JsonValue) -> str:
    """The peer's text of an endpoint member: Python's own for what is not text (section 3.1)."""
    return str(value) if value else ""


def _extension_set_digest(extensions: JsonValue) -> str | None:
    """The digest of a usable list, which holds objects only; None for any other value."""
    if not isinstance(extensions, list):
        return None
    if not all(isinstance(entry, dict) for entry in extensions):
        return None
    declared: JsonValue = {"entries": extensions, "schema_version": _EXTENSION_SCHEMA}
    return "sha256:" + sha256(canonical_bytes(declared, Profile.PY_JSON)).hexdigest()
