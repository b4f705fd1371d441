"""The audit log: events of all runs in one HMAC chain that runs on across the files of the days.

Rules: docs/formats/audit.md. A row's bytes are canonical, so another spelling is another row.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats import json_rules
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ChainBroken, InvalidInput, RowMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.mac import Domain, MacKeys, domain_tag, mac_hex, same_mac
from bernstein_formats.receipt_lines import read_object, refuse_non_finite

AUDIT_FOLDER: Final = "audit"
ARCHIVE_FOLDER: Final = "audit/archive"
CHAIN_LOCK: Final = "audit/.chain.lock"
SEGMENT_SUFFIX: Final = ".jsonl"
ARCHIVED_SUFFIX: Final = ".jsonl.gz"
GENESIS: Final = "0" * 64
SCHEME: Final = 2
# An event that builds on the log's state says so: the hmac of the event before it.
ANCHOR_MEMBER: Final = "prev_chain_digest"
# What a receipt's copy of an event carries; its MAC is that of scheme 1.
ORIGINAL_MEMBER: Final = "_original_hmac"

_TEXTS: Final = (
    "actor", "event_type", "hmac", "prev_hmac", "resource_id", "resource_type", "timestamp",
)  # fmt: skip
_MEMBERS: Final = frozenset({*_TEXTS, "details"})
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_TAG: Final = domain_tag(Domain.AUDIT)
_spell_sorted = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class AuditFields:
    """What a caller says happened; time, place in the chain and MAC are not his."""

    event_type: str
    actor: str
    resource_type: str
    resource_id: str
    details: Mapping[str, JsonValue] = field(default_factory=dict)
    # Whether the details are to name the event before this one.
    is_anchored: bool = False


def spelled_sorted(value: JsonValue) -> bytes:
    """Sorted members, `", "` and `": "`, ASCII: the form of every audit row."""
    try:
        return _spell_sorted(value).encode()
    except RecursionError:
        raise json_rules.too_deep() from None
    except ValueError:
        raise json_rules.too_many_digits() from None


def next_audit_line(fields: AuditFields, timestamp: str, prev_hmac: str, keys: MacKeys) -> bytes:
    """The stored bytes of the event that follows the one with `prev_hmac`, without line feed."""
    if not fields.event_type:
        raise InvalidInput("an audit event needs a type; its text is empty", field="event_type")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidInput(f"{timestamp!r} is not of the form 2026-03-01T10:00:00.000000Z")
    details = dict(fields.details)
    if fields.is_anchored:
        details[ANCHOR_MEMBER] = prev_hmac
    refuse_non_finite(details.values())
    row: dict[str, JsonValue] = {
        "actor": fields.actor,
        "details": details,
        "event_type": fields.event_type,
        "prev_hmac": prev_hmac,
        "resource_id": fields.resource_id,
        "resource_type": fields.resource_type,
        "scheme": SCHEME,
        "timestamp": timestamp,
    }
    return spelled_sorted({**row, "hmac": event_mac(row, keys)})


def event_mac(row: Mapping[str, JsonValue], keys: MacKeys) -> str:
    """The `hmac` of a checked row by its own scheme, over the row without it."""
    rest = {name: value for name, value in row.items() if name != "hmac"}
    text = str(row["prev_hmac"]).encode("utf-8", "surrogatepass") + spelled_sorted(rest)
    if "scheme" in row and row["scheme"] == SCHEME:
        return mac_hex(keys.audit, _TAG + text)
    return mac_hex(keys.master, text)


def read_audit_row(line: bytes) -> Row:
    """Parse a stored line, or raise RowMalformed: not JSON, not canonical, or of another shape."""
    try:
        row = read_object(line)
        canonical = spelled_sorted(row)
    except InvalidInput as error:
        raise RowMalformed(error.message) from error
    missing = sorted(_MEMBERS - row.keys())
    unknown = sorted(row.keys() - _MEMBERS - {"scheme"})
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has the unknown {unknown[0]!r}"
        raise RowMalformed(f"an audit event {what}", member=(missing or unknown)[0])
    wrong = next((name for name in _TEXTS if not isinstance(row[name], str)), None)
    if wrong is not None or not isinstance(row["details"], dict):
        member = wrong or "details"
        raise RowMalformed(f"its {member} is of the wrong type", member=member)
    scheme = row.get("scheme", 1)
    if type(scheme) is not int or scheme not in (1, SCHEME):
        raise RowMalformed(f"its scheme {scheme!r} is unknown", member="scheme")
    if canonical != line:
        raise RowMalformed("its bytes are not canonical: they were written by something else")
    return row


class AuditWalk:
    """Follows the log segment by segment, with the key or (None) by its links alone.

    `add` raises for the first line that is not the log's own; what it names is segment and line.
    """

    __slots__ = ("_keys", "_line", "_newest_scheme", "_segment", "count", "head")

    def __init__(self, keys: MacKeys | None) -> None:
        self._keys = keys
        self._segment = ""
        self._line = 0
        self._newest_scheme = 1
        self.count = 0
        self.head = GENESIS

    def begin_segment(self, name: str) -> None:
        """The next lines are those of another file."""
        self._segment = name
        self._line = 0

    def add(self, line: bytes) -> Row | None:
        """The next physical line, line feed included, as a checked row; None if it is empty."""
        self._line += 1
        if line == b"\n":
            return None
        try:
            row = _read_ended(line)
            self._check_link(row)
            self._check_mac(row)
        except (RowMalformed, ChainBroken) as error:
            raise self._placed(error) from error
        self.head = str(row["hmac"])
        self.count += 1
        return row

    def _check_link(self, row: Row) -> None:
        if row["prev_hmac"] != self.head:
            raise ChainBroken("the event does not follow the one before it", check="link")
        details = row["details"]
        assert isinstance(details, dict)  # so says read_audit_row
        scheme = SCHEME if row.get("scheme") == SCHEME else 1
        if scheme == 1 and (self._newest_scheme == SCHEME or ORIGINAL_MEMBER in details):
            # A receipt's copy of an event carries a MAC that scheme 1 would take for its own.
            raise ChainBroken("an event of scheme 1 has no place here", check="scheme")
        self._newest_scheme = scheme

    def _check_mac(self, row: Row) -> None:
        if self._keys is not None and not same_mac(row["hmac"], event_mac(row, self._keys)):
            raise ChainBroken(
                "the event's hmac is not what the key gives: it was changed or planted", check="mac"
            )

    def _placed(self, error: RowMalformed | ChainBroken) -> RowMalformed | ChainBroken:
        where = f"audit log {self._segment}, line {self._line}"
        facts = {"substrate": "audit", "segment": self._segment, "line": str(self._line)}
        return type(error)(f"{where}: {error.message}", **{**error.metadata, **facts})


def _read_ended(line: bytes) -> Row:
    if not line.endswith(b"\n"):
        raise RowMalformed("the line does not end: its writing was cut short")
    return read_audit_row(line[:-1])


def segment_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a segment, each with its line feed, the last one perhaps without.

    A line feed alone ends one: a canonical row holds no other control character.
    """
    begun: list[bytes] = []
    for chunk in chunks:
        for part in _split(chunk):
            begun.append(part)
            if part.endswith(b"\n"):
                yield b"".join(begun)
                begun = []
    if begun:
        yield b"".join(begun)


def _split(chunk: bytes) -> list[bytes]:
    parts = [part + b"\n" for part in chunk.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return [part for part in parts if part]
