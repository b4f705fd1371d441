"""From configuration to a store: connected, of the right schema, as a user without privileges."""

from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.care import check_services_can
from bernstein_store.postgres.database import Database
from bernstein_store.postgres.notifier import Notifier
from bernstein_store.postgres.pool import connected, open_pool
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.postgres.target import target_of
from bernstein_store.postgres.watchdog import Watchdog


def open_postgres(config: StoreConfig, origin: str) -> PostgresStore:
    """Raises InvalidInput, Unavailable, StoreFailed."""
    target = target_of(config)
    with connected(target) as connection:
        check_services_can(connection, target)
    pool = open_pool(config)
    watchdog = Watchdog(config.statement_timeout_seconds + 1)

    def disconnect() -> None:
        watchdog.close()
        pool.close()

    database = Database(pool, watchdog, target.place, origin)
    return PostgresStore(database, Notifier(target), disconnect)
