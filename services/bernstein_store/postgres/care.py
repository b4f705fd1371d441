"""What an operator does to a database, and what it looks like to the services."""

from pathlib import Path
from typing import Final

from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.pool import Connection, check_durable, connected
from bernstein_store.postgres.schema import check_schema, check_user, migrate
from bernstein_store.postgres.target import Target, target_of

_SETTINGS: Final = ("server_version", "synchronous_commit", "synchronous_standby_names")


def checked(config: StoreConfig) -> dict[str, object]:
    """Look as services do when they start. Raises Unavailable, StoreFailed."""
    target = target_of(config)
    with connected(target) as connection:
        number = check_services_can(connection, target)
        version = connection.execute("select current_setting('server_version')").fetchone()
    assert version is not None
    return {"place": target.place, "server_version": version[0], "migration": number}


def settings_of(config: StoreConfig) -> dict[str, str]:
    """What services work with now: the server that takes writes, and what it promises.

    Raises Unavailable, StoreFailed.
    """
    target = target_of(config)
    with connected(target) as connection:
        found = {"store": target.place, "migration": str(check_services_can(connection, target))}
        for name in _SETTINGS:
            row = connection.execute("select current_setting(%s)", [name]).fetchone()
            found[name] = str(row[0]) if row else ""
    return found | {"statement_timeout_seconds": str(config.statement_timeout_seconds)}


def check_services_can(connection: Connection, target: Target) -> int:
    """Raise StoreFailed for what services must not work with; else the migration's number."""
    check_durable(connection, target.place)
    number = check_schema(connection, target.place)
    check_user(connection, target.place)
    return number


def migrated(config: StoreConfig, owner: str, password_file: Path | None) -> dict[str, object]:
    """Bring the tables up to date as `owner`, for the user of the configuration to work with."""
    target = target_of(config)
    as_owner = target.as_user(owner, password_file) if owner else target
    with connected(as_owner) as connection:
        applied = migrate(connection, target.place, target.user)
    return {"place": target.place, "applied": applied}
