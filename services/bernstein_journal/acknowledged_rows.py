"""Whether stored chains still hold the last row that was acknowledged: what was cut off is missed.

Other writers may have gone on behind it, the peer may have packed its file: only it must be there.
"""

from collections.abc import Iterator
from typing import Final

from bernstein_formats.acknowledged import (
    WHAT_TO_DO,
    Acknowledged,
    last_line,
    missing,
    unreadable,
)
from bernstein_formats.audit_log import AUDIT_FOLDER, SEGMENT_SUFFIX, segment_lines
from bernstein_formats.errors import BernsteinError, RowsMissing
from bernstein_journal.audit_files import AuditFiles
from bernstein_store.store import Store

AUDIT_TARGET: Final = "audit log"


class AcknowledgedRows:
    """Read-only; safe for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._audit = AuditFiles(store)

    def check(self, name: str) -> None:
        """RowsMissing where rows of a log are gone."""
        what = self.missing(name)
        if what:
            raise RowsMissing(f"{name}: {what}; {WHAT_TO_DO}", path=name)

    def check_audit_log(self) -> None:
        """RowsMissing where events are gone from the end of the audit log."""
        what = self.missing_events()
        if what:
            raise RowsMissing(f"{what}; {WHAT_TO_DO}", path=AUDIT_FOLDER)

    def missing(self, name: str) -> str:
        """What is gone from a log; "" if nothing is."""
        known = self._store.acknowledged(name)  # before the size: a log grows first
        try:
            return self._missing(name, known)
        except BernsteinError as error:
            return unreadable(known, error.message)

    def _missing(self, name: str, known: Acknowledged) -> str:
        size = self._store.size(name) or 0

        def read(start: int, end: int) -> bytes:
            return b"".join(self._store.read(name, start, end))

        return missing(known, size, last_line(read, min(known.size, size)))

    def missing_events(self) -> str:
        """What is gone from the end of the audit log; all before it is for the chain to tell."""
        name = self.newest_audit_log()
        if name is None:
            return ""
        known = self._store.acknowledged(name)
        try:
            what = self._missing_in_segment(name, known)
        except BernsteinError as error:
            what = unreadable(known, error.message)
        return what and f"{AUDIT_TARGET} {name.removeprefix(f'{AUDIT_FOLDER}/')}: {what}"

    def newest_audit_log(self) -> str | None:
        """The newest segment that we appended to, whether or not it is there."""
        names = self._store.logs_in(AUDIT_FOLDER)
        ours = (name for name in names if self._store.acknowledged(name).size)
        return max(ours, default=None)

    def _missing_in_segment(self, name: str, known: Acknowledged) -> str:
        if self._store.size(name) is not None:
            return self._missing(name, known)
        day = name.removeprefix(f"{AUDIT_FOLDER}/").removesuffix(SEGMENT_SUFFIX)
        found = [segment for segment in self._audit.segments() if segment.day == day]
        if not found:
            return missing(known, 0, b"")
        return missing(known, *_first(self._audit.read(found[0]), known.size))


def _first(chunks: Iterator[bytes], size: int) -> tuple[int, bytes]:
    """Where the line ends that reaches `size`, or the file; and the line without its line feed."""
    done, last = 0, b""
    for line in segment_lines(chunks):
        if done >= size:
            break
        done, last = done + len(line), line
    return done, last.removesuffix(b"\n")
