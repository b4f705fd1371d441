"""Connections to the database: pooled, each set up the same, checked for what we rely on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from bernstein_formats.errors import StoreFailed
from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.failures import failure
from bernstein_store.postgres.library_log import hear_library
from bernstein_store.postgres.target import Target, target_of

# So long a caller waits for a connection, and so long the pool tries to make one, with longer and
# longer pauses. Both begin anew when the work is tried again: no long pause adds to an outage.
_CONNECTION_SECONDS: Final = 2.0
_TIME_LIMITS: Final = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Knows whose rows the server shows to it."""

    origin_id: int | None = None


def open_pool(config: StoreConfig) -> ConnectionPool[Connection]:
    """A pool whose connections see our tables, with the time limits of the configuration."""
    limit = f"{config.statement_timeout_seconds:.3f}s"

    def configure(connection: Connection) -> None:
        connection.execute("set search_path = bernstein")
        for setting in _TIME_LIMITS:
            connection.execute("select set_config(%s, %s, false)", [setting, limit])

    def arguments() -> dict[str, Any]:
        return {**target.arguments(), "autocommit": True}

    target = target_of(config)
    hear_library()
    return ConnectionPool(
        connection_class=Connection,
        kwargs=arguments,
        configure=configure,
        min_size=1,
        max_size=config.connections_max,
        timeout=_CONNECTION_SECONDS,
        reconnect_timeout=_CONNECTION_SECONDS,
        open=True,
    )


@contextmanager
def connected(target: Target) -> Iterator[Connection]:
    """One connection outside of any pool. Raises Unavailable, StoreFailed."""
    try:
        with Connection.connect("", autocommit=True, **target.arguments()) as connection:  # type: ignore[arg-type]  # all of them are libpq's
            yield connection
    except psycopg.Error as error:
        raise failure(target.place, error) from error


def check_durable(connection: Connection, place: str) -> None:
    """Refuse a server that says yes before a disk has it."""
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        found = connection.execute("select current_setting(%s)", [setting]).fetchone()
        if found == ("off",):
            raise StoreFailed(
                f"{place} has {setting} = off: what it acknowledges may be lost; set it on",
                path=place,
            )
