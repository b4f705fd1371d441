"""The stored segments of the audit log, archived ones included, as one sequence of bytes."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from bernstein_formats.audit_log import (
    ARCHIVE_FOLDER,
    ARCHIVED_SUFFIX,
    AUDIT_FOLDER,
    SEGMENT_SUFFIX,
    segment_lines,
)
from bernstein_formats.errors import JournalError, LimitExceeded, RowMalformed
from bernstein_runtime.limits import CHUNK_BYTES
from bernstein_store.store import Store

# More than any day's log: what unpacks to more is a bomb.
UNPACKED_BYTES_MAX = 1024 * 1024 * 1024
TAIL_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the log, as far as it went when it was looked at."""

    # As in `.sdd/audit`: `2026-03-01.jsonl`, `archive/2025-11-30.jsonl.gz`.
    name: str
    size: int

    @property
    def path(self) -> str:
        return f"{AUDIT_FOLDER}/{self.name}"

    @property
    def day(self) -> str:
        """What segments are ordered by."""
        bare = self.name.rsplit("/", 1)[-1]
        return bare.removesuffix(ARCHIVED_SUFFIX).removesuffix(SEGMENT_SUFFIX)

    @property
    def is_archived(self) -> bool:
        return self.name.endswith(ARCHIVED_SUFFIX)


class AuditFiles:
    """Read-only; safe for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def segments(self) -> list[Segment]:
        """All of them, in the order of the chain; where a day is live and archived, the live."""
        live = self._named(AUDIT_FOLDER, SEGMENT_SUFFIX, "")
        days = {segment.day for segment in live}
        archived = self._named(ARCHIVE_FOLDER, ARCHIVED_SUFFIX, "archive/")
        kept = [segment for segment in archived if segment.day not in days]
        return sorted([*live, *kept], key=lambda segment: segment.day)

    def _named(self, folder: str, suffix: str, prefix: str) -> list[Segment]:
        names = [name for name in self._store.names(folder) if name.endswith(suffix)]
        return [Segment(prefix + name, self._store.size(f"{folder}/{name}") or 0) for name in names]

    def packed(self, day: str) -> str | None:
        """The archive that holds a day's events, where there is no live file of that day."""
        found = (segment for segment in self.segments() if segment.day == day)
        return next((segment.name for segment in found if segment.is_archived), None)

    def read(self, segment: Segment) -> Iterator[bytes]:
        """The segment's bytes, unpacked. RowMalformed for an archive that is damaged."""
        chunks = self._store.read(segment.path, 0, segment.size)
        return _unpacked(chunks, segment.name) if segment.is_archived else chunks

    def last_line(self) -> tuple[bytes, str]:
        """The log's last event without its line feed, and the newest segment's day; b"" and "".

        JournalError where the log does not end as a log does: nothing may follow that.
        """
        segments = self.segments()
        for segment in reversed(segments):
            line = self._last_in(segment)
            if line:
                return line, segments[-1].day
        return b"", segments[-1].day if segments else ""

    def _last_in(self, segment: Segment) -> bytes:
        last = b""
        for line in segment_lines(self._tail(segment)):
            if line != b"\n":
                last = line
        if last and not last.endswith(b"\n"):
            raise JournalError(
                f"the audit log cannot be continued: {segment.name} ends in half a line; "
                "acknowledge the tear with `bernstein audit ack-tear`, which the peer has",
                segment=segment.name,
            )
        return last.removesuffix(b"\n")

    def _tail(self, segment: Segment) -> Iterator[bytes]:
        """Bytes that hold the last line: the end of the file if that has one, else all of it."""
        start = segment.size - TAIL_BYTES
        if segment.is_archived or start <= 0:
            return self.read(segment)
        tail = b"".join(self._store.read(segment.path, start, segment.size))
        whole = tail.partition(b"\n")[2]
        return iter([whole]) if whole.strip(b"\n") else self.read(segment)


def _unpacked(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The content of a gzip file, in pieces; it must be whole."""
    unpack, total, is_whole = zlib.decompressobj(_GZIP), 0, False
    for chunk in chunks:
        packed = chunk
        while packed:
            try:
                piece = unpack.decompress(packed, CHUNK_BYTES)
            except zlib.error as error:
                raise _damaged(name, str(error)) from error
            packed = unpack.unconsumed_tail or unpack.unused_data
            is_whole = unpack.eof
            if is_whole:
                unpack = zlib.decompressobj(_GZIP)
            total += len(piece)
            _check_total(total, name)
            yield piece
    if not is_whole:
        raise _damaged(name, "it ends too early")


def _damaged(name: str, what: str) -> RowMalformed:
    return RowMalformed(
        f"audit log {name}: the archive is damaged ({what}); restore it from its copy",
        substrate="audit", segment=name,
    )  # fmt: skip


def _check_total(total: int, name: str) -> None:
    if total > UNPACKED_BYTES_MAX:
        raise LimitExceeded(
            f"audit log {name} unpacks to more than {UNPACKED_BYTES_MAX} bytes", segment=name
        )
