"""The lineage spine: a run's artifacts as a hash chain, read strictly, walked without the key.

The key is needed for the MAC of a row only; whoever has the rows can check links and hashes.
Rules: docs/formats/spine.md.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import ChainBroken, InvalidInput, RowMalformed
from bernstein_formats.mac import Domain, MacKeys, domain_tag, mac_hex
from bernstein_formats.paths import journal_path

HASHED_TEXTS: Final = (
    "actor",
    "artifact_path",
    "content_hash",
    "model",
    "prev_hash",
    "step_id",
)
TRACE_MEMBERS: Final = ("traceparent", "tracestate", "baggage")
ENTRY_MEMBERS: Final = frozenset({*HASHED_TEXTS, "entry_hash", "timestamp", "v"})
SEAL_STEP_PREFIX: Final = "replay-journal-head:"

SEAL_ACTOR: Final = "orchestrator"
VERSION: Final = 2

_TAGS: Final = {1: b"", VERSION: domain_tag(Domain.LINEAGE)}


@dataclass(frozen=True, slots=True)
class SpineFields:
    """What a caller says of an artifact; the place in the chain and the MAC are not his."""

    artifact_path: str
    content_hash: str
    actor: str
    step_id: str
    model: str
    # Nanoseconds since 1970 in the peer's own rows; any integer will do.
    timestamp: int
    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None

    def members(self) -> dict[str, JsonValue]:
        """The row's members that come from here."""
        named: dict[str, JsonValue] = {
            "actor": self.actor,
            "artifact_path": self.artifact_path,
            "baggage": self.baggage,
            "content_hash": self.content_hash,
            "model": self.model,
            "step_id": self.step_id,
            "timestamp": self.timestamp,
            "traceparent": self.traceparent,
            "tracestate": self.tracestate,
        }
        return {name: value for name, value in named.items() if value is not None}


def seal_fields(run_id: str, journal_head: str, journal_sha256: str, timestamp: int) -> SpineFields:
    """The entry that commits to a finished journal: its head, and the digest of its bytes."""
    return SpineFields(
        artifact_path=f".sdd/{journal_path(run_id)}",
        content_hash=f"sha256:{journal_sha256}",
        actor=SEAL_ACTOR,
        step_id=SEAL_STEP_PREFIX + journal_head,
        model="",
        timestamp=timestamp,
    )


def next_spine_row(fields: SpineFields, prev_hash: str, keys: MacKeys) -> dict[str, JsonValue]:
    """The row that follows the entry with hash `prev_hash` ("" before the first), MAC included."""
    if not fields.artifact_path or not fields.step_id:
        raise InvalidInput("a spine entry needs an artifact path and a step id")
    row: dict[str, JsonValue] = {**fields.members(), "prev_hash": prev_hash, "v": VERSION}
    row["entry_hash"] = entry_hash(row)
    return {**row, "hmac": row_mac(row, keys)}


def spine_row_line(row: Mapping[str, JsonValue]) -> bytes:
    """A row's stored bytes, without the line feed; InvalidInput for half a surrogate pair."""
    return canonical_bytes(dict(row), Profile.JCS)


def spine_head_bytes(count: int, head_hash: str, keys: MacKeys) -> bytes:
    """Content of `spine.head`, which the peer writes after each row and trusts nowhere."""
    members: dict[str, JsonValue] = {"count": count, "head_hash": head_hash}
    return canonical_bytes({**members, "hmac": _mac(members, keys.lineage)}, Profile.JCS)


def entry_hash(entry: Mapping[str, JsonValue]) -> str:
    """The hash of a checked entry; its scheme `v` enters through the domain tag alone."""
    hashed = {name: entry[name] for name in (*HASHED_TEXTS, "timestamp")}
    hashed |= {name: entry[name] for name in TRACE_MEMBERS if name in entry}
    # RFC 8785 and the peer's sorted raw UTF-8 agree on ASCII names, texts and integers.
    preimage = _TAGS[_version(entry)] + canonical_bytes(hashed, Profile.JCS)
    return "sha256:" + hashlib.sha256(preimage).hexdigest()


def row_mac(row: Mapping[str, JsonValue], keys: MacKeys) -> str:
    """The `hmac` of a row: by the key derived for lineage, in scheme 1 by the master key."""
    maced = {name: value for name, value in row.items() if name != "hmac"}
    return _mac(maced, keys.lineage if _version(row) == VERSION else keys.master)


def _mac(members: dict[str, JsonValue], key: bytes) -> str:
    return mac_hex(key, canonical_bytes(members, Profile.JCS))


def embedded_entry(row: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The part of a stored row that a receipt carries; RowMalformed where a member will not do."""
    missing = sorted((ENTRY_MEMBERS | {"hmac"}) - row.keys())
    if missing:
        names = ",".join(missing)
        raise RowMalformed(f"{names} missing; restore the row", member=names)
    traced = [name for name in TRACE_MEMBERS if row.get(name) is not None]
    entry = {name: row[name] for name in (*ENTRY_MEMBERS, *traced)}
    wrong = mistyped_member(entry)
    if wrong is not None:
        raise RowMalformed(f"{wrong} is not {_kind(wrong)}; restore the row", member=wrong)
    return entry


def mistyped_member(entry: Mapping[str, JsonValue]) -> str | None:
    """The first member, by name, whose value is not exactly of the type its writer gives it."""
    for name in sorted(entry.keys() & (ENTRY_MEMBERS | {*TRACE_MEMBERS})):
        wanted = int if name in {"timestamp", "v"} else str
        if type(entry[name]) is not wanted:
            return name
    return None


def _kind(member: str) -> str:
    return "an integer" if member in {"timestamp", "v"} else "text"


def _version(entry: Mapping[str, JsonValue]) -> int:
    version = entry["v"]
    return version if isinstance(version, int) else 0


class SpineWalk:
    """Follows the entries of one spine: link, scheme, hash; `head` is "" before the first."""

    __slots__ = ("count", "head")

    def __init__(self) -> None:
        self.count = 0
        self.head = ""

    def add(self, entry: Mapping[str, JsonValue]) -> None:
        """Check the next entry, or raise ChainBroken with its 0-based position."""
        missing = sorted(ENTRY_MEMBERS - entry.keys())
        if missing:
            raise self._broken(f"lacks {', '.join(missing)}", "member")
        wrong = mistyped_member(entry)
        if wrong is not None:
            raise self._broken(f"has a {wrong} that is not {_kind(wrong)}", "member")
        if entry["prev_hash"] != self.head:
            raise self._broken("does not follow the entry before it", "link")
        if _version(entry) not in _TAGS:
            raise self._broken(f"is of the unknown version {entry['v']}", "version")
        computed = entry_hash(entry)
        if entry["entry_hash"] != computed:
            raise self._broken(f"does not hash to its entry_hash but to {computed}", "hash")
        self.head = computed
        self.count += 1

    def _broken(self, what: str, kind: str) -> ChainBroken:
        return ChainBroken(
            f"spine entry {self.count} {what}", substrate="spine", step=self.count, check=kind
        )


def sealed_journal_head(entry: Mapping[str, JsonValue]) -> str | None:
    """The journal head that an entry commits to, if it is a seal; a spine's newest one holds."""
    step = entry["step_id"]
    if isinstance(step, str) and step.startswith(SEAL_STEP_PREFIX):
        return step.removeprefix(SEAL_STEP_PREFIX)
    return None
