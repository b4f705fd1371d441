"""A log in PostgreSQL: compare, append and remember who asked, in one statement.

Another process that appends to the same log is noticed by the size, which moves with each append:
the one that comes second gets ForeignWriter, catches up, and decides anew what it wants to append.
"""

from collections.abc import Callable, Sequence
from typing import Final

from bernstein_formats.errors import ForeignWriter
from bernstein_runtime import metrics
from bernstein_store.postgres.contents import cut, read_content
from bernstein_store.postgres.database import Database
from bernstein_store.postgres.pool import Connection
from bernstein_store.store import Mark

# Bytes travel in binary (%b): as text they would be twice as many, and cost as much again.
_APPEND: Final = """
    with moved as (
      update files set size = %(end)s, changed_at = clock_timestamp()
      where origin_id = %(origin_id)s and name = %(name)s and content_id = %(content_id)s
        and size = %(size)s and not ended
      returning content_id),
    stored as (
      insert into pieces (origin_id, content_id, position, data)
      select %(origin_id)s, content_id, piece.position, piece.data
      from moved, unnest(%(positions)s::bigint[], %(pieces)b::bytea[]) as piece (position, data)),
    marked as (
      insert into marks (origin_id, content_id, request_id, size, answer)
      select %(origin_id)s, content_id, mark.request_id, mark.size, mark.answer
      from moved, unnest(%(request_ids)s::text[], %(sizes)s::bigint[], %(answers)s::text[])
        as mark (request_id, size, answer)
      on conflict (origin_id, content_id, request_id)
        do update set size = excluded.size, answer = excluded.answer)
    select from moved"""
# Written, not only read: once this is on stable storage, so is everything that it saw, also what a
# primary had taken and, when it was killed, not yet handed to its standby.
_OPEN: Final = """
    insert into files (origin_id, name, content_id, size, put_size)
    values (%(origin_id)s, %(name)s, nextval('contents'), 0, 0)
    on conflict (origin_id, name) do update set opened_at = clock_timestamp()
    returning content_id, size"""
_FORGET: Final = """
    delete from marks where origin_id = %s and content_id = %s
      and made_at < clock_timestamp() - interval '24 hours'"""
MARKS: Final = """
    select request_id, size, answer from marks
    where origin_id = %s and content_id = %s and size > %s order by size"""
_LOOK: Final = """
    select content_id, size from files where origin_id = %(origin_id)s and name = %(name)s"""


class PostgresLog:
    """See `bernstein_store.store.Log`."""

    def __init__(
        self,
        database: Database,
        name: str,
        changed: Callable[[str], None],
        cut_at: Callable[[str, int, int, int], tuple[str, int]],
    ) -> None:
        """`changed` hears the name after each append. `cut_at` cuts the log with this name,
        content id and size at a position; it gives where the tail went, and the new content id."""
        self._database = database
        self._name = name
        self._changed = changed
        self._cut_at = cut_at
        self._content_id, self._size, self._marks = database.run(self._opened)

    @property
    def size(self) -> int:
        return self._size

    @property
    def marks(self) -> Sequence[Mark]:
        return self._marks

    def append(self, data: bytes, marks: Sequence[Mark]) -> None:
        end = self._size + len(data)
        asked = [mark for mark in marks if mark.request_id]
        positions, pieces = cut(data, self._size)
        parameters = self._named | {
            "end": end,
            "positions": positions,
            "pieces": pieces,
            "request_ids": [mark.request_id for mark in asked],
            "sizes": [mark.size for mark in asked],
            "answers": [mark.answer for mark in asked],
        }
        with metrics.appending(data):
            moved = self._database.rows(_APPEND, parameters)
            if not moved and not self._landed(data, asked):
                raise self._foreign()
        self._size = end
        self._changed(self._name)

    def catch_up(self) -> Sequence[Mark]:
        if self._database.rows(_LOOK, self._named) == [(self._content_id, self._size)]:
            return []
        content_id, size, marks = self._database.run(self._opened)
        if content_id != self._content_id or size < self._size:
            raise ForeignWriter(
                f"{self._place} was put in order or replaced by another process; open it again",
                path=self._name,
            )
        found = [mark for mark in marks if mark.size > self._size]
        self._size = size
        return found

    def set_aside(self, start: int) -> str:
        kept, self._content_id = self._cut_at(self._name, self._content_id, self._size, start)
        self._size = start
        return kept

    def close(self) -> None:
        """Nothing is held."""

    @property
    def _place(self) -> str:
        return f"{self._database.place}: {self._name}"

    @property
    def _named(self) -> dict[str, object]:
        return {
            "origin_id": self._database.origin_id,
            "name": self._name,
            "content_id": self._content_id,
            "size": self._size,
        }

    def _opened(self, connection: Connection) -> tuple[int, int, list[Mark]]:
        named = {"origin_id": self._database.origin_id, "name": self._name}
        found = connection.execute(_OPEN, named).fetchone()
        assert found is not None
        content_id, size = found
        connection.execute(_FORGET, [self._database.origin_id, content_id])
        marks = connection.execute(MARKS, [self._database.origin_id, content_id, 0]).fetchall()
        return content_id, size, [Mark(*mark) for mark in marks]

    def _landed(self, data: bytes, asked: Sequence[Mark]) -> bool:
        """Whether this very append is there: its answer got lost with a connection."""
        content_id, size, marks = self._database.run(self._opened)
        end = self._size + len(data)
        if content_id != self._content_id or size < end or not set(asked) <= set(marks):
            return False
        stored = read_content(self._database, self._content_id, self._size, end)
        return b"".join(stored) == data

    def _foreign(self) -> ForeignWriter:
        return ForeignWriter(
            f"{self._place}: another process appended to it, or ended it; what was to follow its"
            f" first {self._size} bytes is not stored",
            path=self._name,
        )
