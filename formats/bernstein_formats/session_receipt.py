"""A session receipt: the manifest that is signed, and the parts of the archive around a journal.

Rules: docs/formats/session-journal.md, section 9. The same journal gives the same bytes: the second
in members' headers is fixed, and the manifest's date is the caller's.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json_unique
from bernstein_formats.errors import InvalidInput, JournalError, ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_archive import (
    JOURNAL,
    MANIFEST,
    SIGNATURE,
    blob_name,
    end_bytes,
    header_bytes,
    padding,
)
from bernstein_formats.session_journal import as_text, blob_refs, normal_row, row_bytes
from bernstein_formats.session_journal_reader import numbered_rows
from bernstein_formats.session_journal_verify import Walk

FORMAT_VERSION: Final = 1
# A list of the peer's, kept to the letter: most of its names are no members of these rows.
_UNAUTHENTICATED: Final = ("ts", "elapsed_s", "index", "prev_hash", "payload_hash", "event_hash")
_KNOWN: Final = frozenset(
    {"agent_id", "bernstein_version", "blob_digests", "created_at", "format_version", "head_hash",
     "steps", "unauthenticated_fields"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SessionManifest:
    """What a receipt says of its chain."""

    agent_id: str
    head_hash: str
    steps: int
    bernstein_version: str
    created_at: str
    blob_digests: tuple[str, ...]
    unauthenticated_fields: tuple[str, ...] = _UNAUTHENTICATED
    # Members that we do not know; no signature covers them.
    unknown: tuple[str, ...] = ()

    def signed_bytes(self) -> bytes:
        """The canonical form, which is stored and signed."""
        members: dict[str, JsonValue] = {
            "agent_id": self.agent_id,
            "bernstein_version": self.bernstein_version,
            "blob_digests": list(self.blob_digests),
            "created_at": self.created_at,
            "format_version": FORMAT_VERSION,
            "head_hash": self.head_hash,
            "steps": self.steps,
            "unauthenticated_fields": list(self.unauthenticated_fields),
        }
        return canonical_bytes(members, Profile.PY_JSON)


def parse_manifest(data: bytes) -> SessionManifest:
    """Read a stored manifest, whatever its layout. Raises ReceiptMalformed."""
    try:
        members = parse_json_unique(data)
    except InvalidInput as error:
        raise ReceiptMalformed(f"the manifest is not valid JSON: {error.message}") from None
    if not isinstance(members, dict):
        raise ReceiptMalformed("the manifest is no JSON object")
    version = members.get("format_version", FORMAT_VERSION)
    if type(version) is not int or version != FORMAT_VERSION:
        raise ReceiptMalformed(
            f"the receipt has format_version {version!r}, and only {FORMAT_VERSION} is known;"
            " verify it with a newer release"
        )
    return SessionManifest(
        agent_id=_text(members, "agent_id"),
        head_hash=_text(members, "head_hash"),
        steps=_count(members),
        bernstein_version=_text({"bernstein_version": "unknown", **members}, "bernstein_version"),
        created_at=_text({"created_at": "", **members}, "created_at"),
        blob_digests=_texts(members, "blob_digests", ()),
        unauthenticated_fields=_texts(members, "unauthenticated_fields", _UNAUTHENTICATED),
        unknown=tuple(sorted(members.keys() - _KNOWN)),
    )


def _text(members: Row, name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise ReceiptMalformed(f"the manifest's {name} is missing or no text")
    return value


def _count(members: Row) -> int:
    value = members.get("steps")
    if not isinstance(value, int) or isinstance(value, bool):
        raise ReceiptMalformed("the manifest's steps is missing or no whole number")
    return value


def _texts(members: Row, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = members.get(name, list(default))
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ReceiptMalformed(f"the manifest's {name} is no list of texts")
    return tuple(map(as_text, value))


@dataclass(slots=True)
class ReceiptRows:
    """Takes a whole journal, verifies it, and writes each row anew, as receipts hold them."""

    what: str = "export"
    newest_ts: float = 0.0
    _walk: Walk = field(default_factory=Walk)
    _digests: dict[str, None] = field(default_factory=dict)

    def lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The rows with their LF. Raises JournalError, at the end, for a broken journal."""
        for number, row in numbered_rows(chunks):
            self._walk.take(number, row)
            if isinstance(row, dict) and self._walk.is_clean:
                yield self._noted(normal_row(row))
        verdict = self._walk.verdict()
        if not verdict.ok:
            texts = "; ".join(fault.text for fault in verdict.faults[:5])
            raise JournalError(
                f"the journal fails its own verification before {self.what}: {texts}"
            )
        if not verdict.steps:
            raise JournalError(f"there is no step to {self.what}: the journal is empty")

    def _noted(self, row: Row) -> bytes:
        self._digests.update(dict.fromkeys(map(as_text, blob_refs(row))))
        ts = row["ts"]
        assert isinstance(ts, float)
        self.newest_ts = ts
        return row_bytes(row) + b"\n"

    @property
    def head_hash(self) -> str:
        return self._walk.head_hash

    def manifest(self, agent_id: str, created_at: str, version: str) -> SessionManifest:
        """What to say of the journal, once all of it was taken."""
        return SessionManifest(
            agent_id, self._walk.head_hash, self._walk.steps, version, created_at,
            tuple(self._digests),
        )  # fmt: skip


def receipt_parts(
    manifest: SessionManifest,
    signature: bytes,
    journal: tuple[int, Iterable[bytes]],
    blobs: Iterable[tuple[str, bytes]],
    mtime: int = 0,
) -> Iterator[bytes]:
    """The archive's bytes. `journal` is its size and its parts; no signature: unsigned."""
    size = 0

    def member(name: str, length: int, parts: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal size
        header, end = header_bytes(name, length, mtime), padding(length)
        size += len(header) + length + len(end)
        yield header
        yield from parts
        yield end

    stored = manifest.signed_bytes()
    yield from member(MANIFEST, len(stored), [stored])
    if signature:
        text = b64encode(signature)
        yield from member(SIGNATURE, len(text), [text])
    yield from member(JOURNAL, *journal)
    for digest, content in blobs:
        yield from member(blob_name(digest), len(content), [content])
    yield end_bytes(size)
