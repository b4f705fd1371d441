"""Which store a service keeps evidence in: `[store]` says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from bernstein_formats.errors import InvalidInput, NotAllowed
from bernstein_runtime.config import StoreConfig, load_table
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import Places
from bernstein_store.files import FileStore
from bernstein_store.store import Store, Stores


@dataclass(frozen=True, slots=True)
class FileStores:
    """Files, which are those of one project."""

    places: Places
    origin: str

    def of(self, origin: str) -> Store:
        """Raises NotAllowed for any other origin."""
        if origin != self.origin:
            raise NotAllowed(
                f"runs are kept in files here, those of {self.origin!r} alone, and {origin!r} was"
                " asked for; set [fleet] origin, or keep runs in PostgreSQL",
                origin=origin,
            )
        return FileStore(self.places.sdd_dir)

    def facts(self) -> Mapping[str, str]:
        return {"store": "files"}

    def close(self) -> None:
        """Nothing is shared."""


def chosen_stores(places: Places, environ: Mapping[str, str]) -> Stores:
    """Where a service keeps evidence. Raises InvalidInput, Unavailable, StoreFailed."""
    config = load_table(StoreConfig, "store", places.state_dir, environ)
    if not config.url:
        return FileStores(places, origin_of(places, environ))
    check_driver()
    from bernstein_store.postgres.opening import PostgresStores  # noqa: PLC0415 - its extra may be absent

    return PostgresStores(config)


def check_driver() -> None:
    """Raises InvalidInput where the optional packages are absent."""
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        raise InvalidInput(
            "[store] url is set, and the packages for PostgreSQL are not installed:"
            " install bernstein-services[postgres]"
        )
