"""A stored content that is read in many small pieces."""

from typing import Final

from bernstein_store.postgres.contents import read_content
from bernstein_store.postgres.database import Database

WINDOW_BYTES: Final = 256 * 1024
_FACTS: Final = """
    select size, extract(epoch from changed_at)::float8 from files
    where origin_id = %s and name = %s"""


def facts(database: Database, name: str) -> tuple[int, float] | None:
    """Size and Unix time of the last change; None when there is no such file."""
    found = database.rows(_FACTS, [database.origin_id, name])
    return (found[0][0], found[0][1]) if found else None


class PostgresReader:
    """See `bernstein_store.store.Reader`. What was read once is never read again soon: the bytes of
    a content do not change, there are only more of them."""

    def __init__(self, database: Database, name: str, content_id: int, size: int) -> None:
        self._database = database
        self._name = name
        self._content_id = content_id
        self._size = size
        # Where it begins and its bytes; replaced as one, for any number of threads.
        self._window: tuple[int, bytes] = (0, b"")

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self._size:
            self._size = self.facts()[0]
        end = min(offset + length, self._size)
        start, window = self._window
        if not start <= offset <= end <= start + len(window):
            until = min(max(end, offset + WINDOW_BYTES), self._size)
            start = offset
            window = b"".join(read_content(self._database, self._content_id, offset, until))
            self._window = start, window
        return window[offset - start : end - start]

    def facts(self) -> tuple[int, float]:
        return facts(self._database, self._name) or (0, 0.0)
