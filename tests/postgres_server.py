"""A PostgreSQL server of Debian's for tests: in a folder of its own, on a Unix socket only."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.opening import PostgresStores
from bernstein_store.postgres.pool import connected
from bernstein_store.postgres.schema import migrate
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.postgres.target import target_of

OWNER, SERVICE = "bernstein_owner", "bernstein"


def installed() -> Path | None:
    """The folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class PostgresServer:
    """A cluster; `database` makes one in it, with our tables."""

    def __init__(self) -> None:
        programs = installed()
        if programs is None:
            pytest.skip("PostgreSQL is needed: apt-get install postgresql")
        self._programs = programs
        # Short, for the socket's sake; the server refuses to be root's.
        self.folder = Path(tempfile.mkdtemp(prefix="bernstein-pg-", dir="/tmp"))
        self._as: Sequence[str] = ()
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self._as = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        self._run("initdb", "--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8")
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\n"
                "max_connections = 200\nshared_buffers = 64MB\n"
            )
        self.start()
        self.execute(f"create role {OWNER} login; create role {SERVICE} login")

    def start(self) -> None:
        self._run("pg_ctl", "--wait", "--log", str(self.folder / "log"), "start")

    def stop(self, mode: str) -> None:
        """`immediate` is a crash: nothing is written down any more."""
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def url(self, database: str, user: str = SERVICE) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, text: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """As superuser."""
        with psycopg.connect(self.url(database, "postgres"), autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def database(self) -> str:
        """Make a database with our tables; its URL for services."""
        name = f"b{secrets.token_hex(4)}"
        self.execute(f"create database {name} owner {OWNER}")
        with connected(target_of(StoreConfig(url=self.url(name, OWNER)))) as connection:
            migrate(connection, name, SERVICE)
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        data = str(self.folder / "data")
        subprocess.run(
            [*self._as, str(self._programs / program), "-D", data, *arguments],
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )


def open_store(
    url: str, origin: str = "host:project", config: StoreConfig | None = None
) -> PostgresStore:
    """One that takes its connections along when it is closed."""
    stores = PostgresStores(config or StoreConfig(url=url))
    store = stores.of(origin)
    forget = store.close

    def close() -> None:
        forget()
        stores.close()

    store.close = close  # type: ignore[method-assign]  # see above
    return store
