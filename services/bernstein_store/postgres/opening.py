"""From configuration to a store: connected, of the right schema, as a user without privileges."""

from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.care import check_services_can, settings_of
from bernstein_store.postgres.database import Database
from bernstein_store.postgres.notifier import Notifier
from bernstein_store.postgres.pool import connected, open_pool
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.postgres.target import target_of
from bernstein_store.postgres.watchdog import Watchdog


class PostgresStores:
    """See `bernstein_store.store.Stores`: one pool of connections, one notifier."""

    def __init__(self, config: StoreConfig) -> None:
        """Raises InvalidInput, Unavailable, StoreFailed."""
        self._config = config
        self._target = target_of(config)
        with connected(self._target) as connection:
            check_services_can(connection, self._target)
        self._pool = open_pool(config)
        self._watchdog = Watchdog(config.statement_timeout_seconds + 1)
        self._notifier = Notifier(self._target)

    def of(self, origin: str) -> PostgresStore:
        database = Database(self._pool, self._watchdog, self._target.place, origin)
        return PostgresStore(database, self._notifier)

    def facts(self) -> dict[str, str]:
        return settings_of(self._config)

    def close(self) -> None:
        self._notifier.close()
        self._watchdog.close()
        self._pool.close()
