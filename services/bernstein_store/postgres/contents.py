"""The bytes of a stored content: as pieces in, as chunks out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bernstein_formats.errors import BernsteinError, StoreFailed, Unavailable
from bernstein_store.postgres.database import Database
from bernstein_store.postgres.pool import Connection

PIECE_BYTES: Final = 256 * 1024
WINDOW_BYTES: Final = 1024 * 1024
_READ: Final = """
    select position, data from pieces
    where origin_id = %(origin_id)s and content_id = %(content_id)s and position < %(end)s
      and position >= (
        select coalesce(max(position), 0) from pieces
        where origin_id = %(origin_id)s and content_id = %(content_id)s and position <= %(start)s)
    order by position"""
_NAME: Final = "select name from files where origin_id = %s and content_id = %s"
_STORE: Final = """
    insert into pieces (origin_id, content_id, position, data) values (%s, %s, %s, %b)"""


def cut(data: bytes, start: int) -> tuple[list[int], list[bytes]]:
    """Positions and pieces of bytes that begin at `start`."""
    offsets = range(0, len(data), PIECE_BYTES)
    return [start + each for each in offsets], [data[at : at + PIECE_BYTES] for at in offsets]


def store_content(
    connection: Connection, origin_id: int, content_id: int, parts: Iterable[bytes]
) -> int:
    """Store a content from its beginning; gives its size."""
    size, waiting, held = 0, list[bytes](), 0
    for part in parts:
        waiting.append(part)
        held += len(part)
        if held >= WINDOW_BYTES:
            size = _store_at(connection, origin_id, content_id, size, waiting)
            waiting, held = [], 0
    return _store_at(connection, origin_id, content_id, size, waiting)


def _store_at(
    connection: Connection, origin_id: int, content_id: int, start: int, parts: Sequence[bytes]
) -> int:
    data = b"".join(parts)
    rows = [(origin_id, content_id, at, piece) for at, piece in zip(*cut(data, start), strict=True)]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_STORE, rows)
    return start + len(data)


def read_content(database: Database, content_id: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, all of which were stored.

    No transaction lasts longer than a window. Raises Unavailable when the content was replaced, and
    StoreFailed when it was damaged.
    """
    while start < end:
        until = min(end, start + WINDOW_BYTES)
        parameters: dict[str, Any] = {
            "origin_id": database.origin_id,
            "content_id": content_id,
            "start": start,
            "end": until,
        }
        for position, data in database.rows(_READ, parameters):
            if position > start or position + len(data) <= start:
                break
            piece = data[start - position : until - position]
            start += len(piece)
            yield piece
        if start < until:
            raise _gone(database, content_id, start)


def _gone(database: Database, content_id: int, start: int) -> BernsteinError:
    """Why bytes are not there: other content has taken the place of this, or they were removed."""
    found = database.rows(_NAME, [database.origin_id, content_id])
    if not found:
        return Unavailable(
            f"{database.place}: a file was replaced while it was read; try again",
            path=database.place,
        )
    return StoreFailed(
        f"{database.place}: {found[0][0]} has no bytes from {start} on, which were stored: rows"
        " were removed from the database by hand; restore it from a backup",
        path=found[0][0],
    )
