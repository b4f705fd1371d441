"""Transactions for one origin, tried again when a connection is lost.

After a failover or a restart the same work goes on with the new primary. Nothing here knows what
the work is: what is run may be run twice, and minds that itself where it matters.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
import structlog
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from bernstein_formats.errors import Conflict
from bernstein_runtime import metrics
from bernstein_store.postgres.failures import failure, passes
from bernstein_store.postgres.pool import Connection
from bernstein_store.postgres.watchdog import Watchdog
from bernstein_store.store import LOCK_WAIT_SECONDS

# A failover may take so long; callers of the services wait for longer.
OUTAGE_SECONDS: Final = 40.0
# Outside of a transaction, with which it would be undone.
_SET_ORIGIN: Final = "select set_config('bernstein.origin_id', %s::text, false)"
_FIND_ORIGIN: Final = "select origin_id from origins where name = %s"
_MAKE_ORIGIN: Final = "insert into origins (name) values (%s) on conflict do nothing"
_LOCK_KEY: Final = "hashtextextended(%s::text || ' ' || %s::text, 0)"

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
Result = TypeVar("Result")
log = structlog.get_logger()


class _Lost(Exception):
    """The connection went away; what the transaction came to is unknown."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class Database:
    """What one origin sees of it. Safe for any number of threads."""

    def __init__(
        self, pool: ConnectionPool[Connection], watchdog: Watchdog, place: str, origin: str
    ) -> None:
        """`place` names the database to people. Raises Unavailable, DiskFull, StoreFailed."""
        self._pool = pool
        self._watchdog = watchdog
        self.place = place
        self.origin = origin
        # The connection on which this thread holds a lock: who lost the one has lost the other.
        self._holding = threading.local()
        self.origin_id = 0
        self.origin_id = self.run(self._numbered)

    def rows(self, query: str, parameters: Parameters) -> list[Row]:
        """What one statement gives, in a transaction of its own and in one round trip."""

        def send(connection: Connection) -> psycopg.Cursor[Row]:
            with self._watchdog.watching(connection):
                self._take_over(connection)
                return connection.execute(query.encode(), parameters)

        return self._tried(send).fetchall()

    def run(self, work: Callable[[Connection], Result], *, time_limits: int = 1) -> Result:
        """Do `work` in a transaction; all of it again when its connection is lost.

        It may take as long as so many statements. Raises Unavailable, DiskFull, StoreFailed.
        """

        def watched(connection: Connection) -> Result:
            with self._watchdog.watching(connection, time_limits):
                return self._transaction(connection, work)

        return self._tried(watched)

    def run_once(self, work: Callable[[Connection], Result]) -> Result:
        """For work that cannot be done twice. Raises Unavailable when its end is unknown."""
        with self._own_errors():
            return self._pooled(lambda connection: self._transaction(connection, work))

    def _tried(self, work: Callable[[Connection], Result]) -> Result:
        held: Connection | None = getattr(self._holding, "connection", None)
        with self._own_errors():
            if held is not None:
                return self._once(held, work)
            for attempt in _retrying():
                with attempt:
                    return self._pooled(work)
        raise AssertionError("the last attempt raises or returns")

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold a lock that all processes know; work of this thread runs on its connection."""
        assert getattr(self._holding, "connection", None) is None, "one lock at a time"
        connection = self._locked_connection(name)
        try:
            self._holding.connection = connection
            try:
                yield
            finally:
                del self._holding.connection
                self._release(connection, name)
        finally:
            self._pool.putconn(connection)

    def _locked_connection(self, name: str) -> Connection:
        """One from the pool that holds the lock."""
        with self._own_errors():
            for attempt in _retrying():
                with attempt:
                    connection = self._got()
                    try:
                        self._once(connection, lambda each: self._take_lock(each, name))
                    except BaseException:
                        self._pool.putconn(connection)
                        raise
                    return connection
        raise AssertionError("the last attempt raises or returns")

    def _got(self) -> Connection:
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            raise _Lost(error) from error

    def _take_lock(self, connection: Connection, name: str) -> None:
        wait = f"{LOCK_WAIT_SECONDS:.0f}s"
        key = [self.origin_id, name]
        try:
            with self._watchdog.watching(connection), connection.transaction():
                connection.execute("select set_config('lock_timeout', %s, true)", [wait])
                connection.execute(f"select pg_advisory_lock({_LOCK_KEY})".encode(), key)
        except psycopg.errors.LockNotAvailable as error:
            raise Conflict(
                f"{name} has been locked for {wait} by another process; try again", path=name
            ) from error

    def _release(self, connection: Connection, name: str) -> None:
        key = [self.origin_id, name]
        try:
            with self._watchdog.watching(connection), connection.transaction():
                connection.execute(f"select pg_advisory_unlock({_LOCK_KEY})".encode(), key)
        except psycopg.Error:
            connection.close()  # the lock ends with it, and the pool makes another one

    def _pooled(self, work: Callable[[Connection], Result]) -> Result:
        try:
            with self._pool.connection() as connection:
                return self._once(connection, work)
        except PoolTimeout as error:
            raise _Lost(error) from error

    def _transaction(self, connection: Connection, work: Callable[[Connection], Result]) -> Result:
        self._take_over(connection)
        with connection.pipeline(), connection.transaction():
            return work(connection)

    def _take_over(self, connection: Connection) -> None:
        """Have a connection see our origin's rows; it may have worked for another one."""
        if connection.origin_id != self.origin_id:
            connection.execute(_SET_ORIGIN, [self.origin_id])
            connection.origin_id = self.origin_id

    def _once(self, connection: Connection, work: Callable[[Connection], Result]) -> Result:
        try:
            return work(connection)
        except psycopg.Error as error:
            if passes(error):
                metrics.STORE_RETRIES.add()
                self._pool.drain()  # the others lead to the same server
                log.warning("connection_lost", place=self.place, error=type(error).__name__)
                raise _Lost(error) from error
            raise

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except _Lost as lost:
            raise failure(self.place, lost.error) from lost
        except psycopg.Error as error:
            raise failure(self.place, error) from error

    def _numbered(self, connection: Connection) -> int:
        """The origin's number, given to it if need be."""
        found = connection.execute(_FIND_ORIGIN, [self.origin]).fetchone()
        if found is None:
            connection.execute(_MAKE_ORIGIN, [self.origin])
            found = connection.execute(_FIND_ORIGIN, [self.origin]).fetchone()
        assert found is not None
        return int(found[0])


def _retrying() -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(_Lost),
        stop=stop_after_delay(OUTAGE_SECONDS),
        wait=wait_exponential_jitter(multiplier=0.05, max=1.0),
        reraise=True,
    )
