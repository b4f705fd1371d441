"""The stores under test: each driver, empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres_server import PostgresServer, open_store

from bernstein_store.files import FileStore
from bernstein_store.store import Store


@pytest.fixture(scope="session")
def database_url(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture(params=["files", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "files":
        (tmp_path / ".sdd").mkdir()
        yield FileStore(tmp_path / ".sdd")
        return
    made = open_store(request.getfixturevalue("database_url"), origin=str(tmp_path))
    yield made
    made.close()
