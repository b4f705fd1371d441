"""One origin's evidence in PostgreSQL, under the names that it has in an `.sdd` tree."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from bernstein_formats.acknowledged import Acknowledged
from bernstein_formats.errors import ForeignWriter, InvalidInput, RunExists
from bernstein_formats.paths import RUNS_FOLDER
from bernstein_store.postgres.contents import read_content, store_content
from bernstein_store.postgres.database import Database, Parameters, Row
from bernstein_store.postgres.log import MARKS, PostgresLog
from bernstein_store.postgres.notifier import Notifier
from bernstein_store.postgres.pool import Connection
from bernstein_store.postgres.reader import PostgresReader, facts
from bernstein_store.store import Mark

_MAKE_RUN: Final = """
    insert into runs (origin_id, run_id) values (%s, %s) on conflict do nothing returning run_id"""
_LOCK: Final = """
    select content_id, size, put_size from files where origin_id = %s and name = %s for update"""
_PUT: Final = """
    insert into files (origin_id, name, content_id, size, put_size) values (%s, %s, %s, %s, %s)
    on conflict (origin_id, name) do update set content_id = excluded.content_id,
      size = excluded.size, put_size = excluded.put_size, changed_at = clock_timestamp()"""
# What was put whole was not appended by us, and nobody was told of its rows.
_ACKNOWLEDGED: Final = """
    select size, coalesce((
        select answer from marks
        where marks.origin_id = files.origin_id and marks.content_id = files.content_id
          and marks.size = files.size), '')
    from files where origin_id = %s and name = %s and size > put_size"""
_DROP_PIECES: Final = "delete from pieces where origin_id = %s and content_id = %s"
_DROP_MARKS: Final = "delete from marks where origin_id = %s and content_id = %s"
_MOVE_MARKS: Final = """
    update marks set content_id = %s, size = %s where origin_id = %s and content_id = %s"""
_END: Final = """
    update files set ended = true
    where origin_id = %s and name = %s and size = %s returning content_id"""
# A log of any length is written again.
REWRITE_TIME_LIMITS: Final = 60
# A notification gets lost only with its connection.
POLL_SECONDS: Final = 5.0
# A folder's names, in byte order: "0" follows "/".
_BELOW: Final = """
    select name, content_id from files
    where origin_id = %s and name > %s || '/' and name < %s || '0' order by name"""
_LOGS_BELOW: Final = """
    select name from files
    where origin_id = %s and name > %s || '/' and name < %s || '0' and size > put_size"""


class PostgresStore:
    """See `bernstein_store.store.Store`."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._origin_id = database.origin_id

    def open_log(self, name: str, *, private: bool = False) -> PostgresLog:
        # Who may read is for the database's roles, and the same for all.
        self._note_run(name)
        return PostgresLog(self._database, name, self._changed, self._cut_at)

    def marks_of(self, name: str) -> Sequence[Mark]:
        found = self._file(name)
        if found is None:
            return []
        return [Mark(*mark) for mark in self._rows(MARKS, [self._origin_id, found[0], 0])]

    def acknowledged(self, name: str) -> Acknowledged:
        found = self._rows(_ACKNOWLEDGED, [self._origin_id, name])
        return Acknowledged(*found[0]) if found else Acknowledged()

    def logs_in(self, folder: str) -> list[str]:
        found = self._rows(_LOGS_BELOW, [self._origin_id, folder, folder])
        return [name for (name,) in found if "/" not in name.removeprefix(f"{folder}/")]

    def accept_log(self, name: str) -> None:
        """What is there and what was acknowledged are one thing here."""

    def rewrite_log(self, name: str, parts: Callable[[], Iterator[bytes]]) -> None:
        def work(connection: Connection) -> None:
            old = connection.execute(_LOCK, [self._origin_id, name]).fetchone()
            content_id, size = self._stored(connection, name, parts(), was_put=False)
            if old is not None:
                moved = [content_id, size, self._origin_id, old[0]]
                connection.execute(_MOVE_MARKS, moved)
                self._drop(connection, old[0])

        self._database.run(work, time_limits=REWRITE_TIME_LIMITS)
        self._changed(name)

    def end_log(self, name: str, size: int, note: str, data: bytes) -> None:
        def work(connection: Connection) -> None:
            if connection.execute(_END, [self._origin_id, name, size]).fetchone() is None:
                raise ForeignWriter(
                    f"{self.where(name)} has not the {size} bytes any more that it was to end with",
                    path=name,
                )
            self._replace(connection, note, [data])

        self._database.run(work)
        self._changed(note)

    def read(self, name: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        found = self._file(name)
        if found is None:
            return iter(())
        content_id, size = found
        end = size if end is None else min(end, size)
        return read_content(self._database, content_id, start, end)

    def open_reader(self, name: str) -> PostgresReader | None:
        found = self._file(name)
        if found is None:
            return None
        return PostgresReader(self._database, name, *found)

    def size(self, name: str) -> int | None:
        found = self._file(name)
        return None if found is None else found[1]

    def stored_size(self, name: str) -> int:
        return self.size(name) or 0

    def changed_at(self, name: str) -> float:
        return (facts(self._database, name) or (0, 0.0))[1]

    def get(self, name: str) -> bytes | None:
        found = self._file(name)
        return None if found is None else b"".join(self.read(name))

    def put(self, name: str, data: bytes) -> None:
        self._database.run(lambda each: self._replace(each, name, [data]))
        self._changed(name)

    def put_parts(self, name: str, parts: Iterator[bytes]) -> int:
        size = self._database.run_once(lambda each: self._replace(each, name, parts))
        self._changed(name)
        return size

    def remove(self, name: str) -> None:
        self._database.run(lambda each: self._remove(each, [name]))

    def names(self, folder: str) -> list[str]:
        return [name for name in self.names_below(folder) if "/" not in name]

    def names_below(self, folder: str) -> list[str]:
        found = self._rows(_BELOW, [self._origin_id, folder, folder])
        return [name.removeprefix(f"{folder}/") for name, _ in found]

    def locked(self, name: str) -> AbstractContextManager[object]:
        return self._database.locked(name)

    def run_ids(self) -> list[str]:
        found = self._rows("select run_id from runs where origin_id = %s", [self._origin_id])
        return [run_id for (run_id,) in found]

    def has_run(self, run_id: str) -> bool:
        query = "select from runs where origin_id = %s and run_id = %s"
        return "\0" not in run_id and bool(self._rows(query, [self._origin_id, run_id]))

    def real_run(self, run_id: str) -> str:
        return run_id

    def make_run(self, run_id: str) -> None:
        if not self._rows(_MAKE_RUN, [self._origin_id, run_id]):
            raise RunExists(f"run {run_id} exists already; choose another id", run_id=run_id)

    def is_own_folder(self, run_id: str) -> bool:
        return self.has_run(run_id)

    def remove_run(self, run_id: str, keep: Collection[str], last: str) -> None:
        folder = f"{RUNS_FOLDER}/{run_id}"

        def work(connection: Connection) -> None:
            found = connection.execute(_BELOW, [self._origin_id, folder, folder]).fetchall()
            names = [name for name, _ in found]
            kept = [name for name in names if name.removeprefix(f"{folder}/") in keep]
            self._remove(connection, [name for name in names if name not in kept])
            if not kept:
                connection.execute(
                    "delete from runs where origin_id = %s and run_id = %s",
                    [self._origin_id, run_id],
                )

        if not self.has_run(run_id):
            raise InvalidInput(f"there is no run {run_id}; nothing is removed", run_id=run_id)
        self._database.run(work)

    def tell(self, on_changed: Callable[[str], None]) -> float:
        self._notifier.listen(self._origin_id, on_changed)
        return POLL_SECONDS

    def check(self) -> None:
        self._rows("select pg_catalog.txid_current()", [])

    def where(self, name: str) -> str:
        return f"{self._database.place}/{self._database.origin}/{name}"

    def close(self) -> None:
        self._notifier.forget(self._origin_id)

    def _rows(self, query: str, parameters: Parameters) -> list[Row]:
        return self._database.rows(query, parameters)

    def _file(self, name: str) -> tuple[int, int] | None:
        query = "select content_id, size from files where origin_id = %s and name = %s"
        found = self._rows(query, [self._origin_id, name])
        return (found[0][0], found[0][1]) if found else None

    def _changed(self, name: str) -> None:
        self._notifier.changed(self._origin_id, name)

    def _note_run(self, name: str, connection: Connection | None = None) -> None:
        """A run is there as soon as one of its files is."""
        top, _, rest = name.partition("/")
        run_id, _, file = rest.partition("/")
        if top != RUNS_FOLDER or not file:
            return
        parameters = [self._origin_id, run_id]
        if connection is not None:
            connection.execute(_MAKE_RUN, parameters)
        elif not self.has_run(run_id):
            self._rows(_MAKE_RUN, parameters)

    def _replace(self, connection: Connection, name: str, parts: Iterable[bytes]) -> int:
        old = connection.execute(_LOCK, [self._origin_id, name]).fetchone()
        _, size = self._stored(connection, name, parts, was_put=True)
        if old is not None:
            self._drop(connection, old[0])
        return size

    def _stored(
        self, connection: Connection, name: str, parts: Iterable[bytes], *, was_put: bool
    ) -> tuple[int, int]:
        """New content under a name: its id and size."""
        self._note_run(name, connection)
        row = connection.execute("select nextval('contents')").fetchone()
        assert row is not None
        content_id = int(row[0])
        size = store_content(connection, self._origin_id, content_id, parts)
        put_size = size if was_put else 0
        connection.execute(_PUT, [self._origin_id, name, content_id, size, put_size])
        return content_id, size

    def _remove(self, connection: Connection, names: Iterable[str]) -> None:
        for name in names:
            query = "delete from files where origin_id = %s and name = %s returning content_id"
            found = connection.execute(query, [self._origin_id, name]).fetchone()
            if found is not None:
                self._drop(connection, found[0])

    def _drop(self, connection: Connection, content_id: int) -> None:
        connection.execute(_DROP_PIECES, [self._origin_id, content_id])
        connection.execute(_DROP_MARKS, [self._origin_id, content_id])

    def _cut_at(self, name: str, content_id: int, size: int, start: int) -> tuple[str, int]:
        """See PostgresLog. Only what was put whole may be cut: the rest was acknowledged."""

        def work(connection: Connection) -> tuple[str, int]:
            old = connection.execute(_LOCK, [self._origin_id, name]).fetchone()
            if old != (content_id, size, size):
                raise ForeignWriter(
                    f"{self.where(name)}: bytes behind {start} were acknowledged; nothing is cut",
                    path=name,
                )
            number = 1
            while self.size(kept := f"{name}.torn-{number}") is not None:
                number += 1
            self._replace(connection, kept, self.read(name, start))
            new_id, _ = self._stored(connection, name, self.read(name, 0, start), was_put=True)
            self._drop(connection, content_id)
            return kept, new_id

        return self._database.run_once(work)
