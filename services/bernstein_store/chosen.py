"""Which store a service keeps evidence in: `[store]` says so."""

from collections.abc import Mapping
from importlib.util import find_spec

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.config import StoreConfig, load_table
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import Places
from bernstein_store.files import FileStore
from bernstein_store.store import Store


def chosen_store(places: Places, environ: Mapping[str, str]) -> Store:
    """The store of a service's project; close it. Raises InvalidInput, Unavailable, StoreFailed."""
    config = load_table(StoreConfig, "store", places.state_dir, environ)
    if not config.url:
        return FileStore(places.sdd_dir)
    check_driver()
    from bernstein_store.postgres.opening import open_postgres  # noqa: PLC0415 - its extra may be absent

    return open_postgres(config, origin_of(places, environ))


def check_driver() -> None:
    """Raises InvalidInput where the optional packages are absent."""
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        raise InvalidInput(
            "[store] url is set, and the packages for PostgreSQL are not installed:"
            " install bernstein-services[postgres]"
        )
