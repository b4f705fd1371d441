"""The lineage spine: a run's artifacts as a hash chain, read strictly, walked without the key.

The key is needed for the MAC of a row only; whoever has the rows can check links and hashes.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import ChainBroken, RowMalformed

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

_TAGS: Final = {1: b"", 2: b"bernstein:lineage:v2"}


def entry_hash(entry: Mapping[str, JsonValue]) -> str:
    """The hash of a checked entry; its scheme `v` enters through the domain tag alone."""
    hashed = {name: entry[name] for name in (*HASHED_TEXTS, "timestamp")}
    hashed |= {name: entry[name] for name in TRACE_MEMBERS if name in entry}
    # RFC 8785 and the peer's sorted raw UTF-8 agree on ASCII names, texts and integers.
    preimage = _TAGS[_version(entry)] + canonical_bytes(hashed, Profile.JCS)
    return "sha256:" + hashlib.sha256(preimage).hexdigest()


def row_mac(row: Mapping[str, JsonValue], key: bytes) -> str:
    """The `hmac` of a stored row; the key is the one derived for `lineage` (v 2), or the master."""
    maced = {name: value for name, value in row.items() if name != "hmac"}
    return hmac.new(key, canonical_bytes(maced, Profile.JCS), hashlib.sha256).hexdigest()


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
