"""The tables: numbered SQL files, each applied once, and which of them a program needs.

A change that older programs do not survive comes in two releases: the first one adds (its file says
`-- needs:` what the release before already knew), the second one takes away. So a release works
with the schema of the one after it, and services are replaced one by one.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from psycopg import sql

from bernstein_formats.errors import StoreFailed
from bernstein_store.postgres.pool import Connection

_FILE: Final = re.compile(r"(\d{4})_\w+\.sql")
_NEEDS: Final = re.compile(r"-- needs: (\d+)\n")
# One at a time, whoever starts it.
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('bernstein migrations', 0))"
_TABLE: Final = """
    create table if not exists bernstein.migrations (
        number     integer primary key,
        name       text not null,
        sha256     text not null,
        -- The oldest number that a program must know to work with the tables as they are now.
        needs      integer not null,
        applied_at timestamptz not null default now()
    )"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    text: str
    needs: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All that this program knows, in order."""
    folder = resources.files("bernstein_store.postgres") / "migrations"
    found = []
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        number = _FILE.fullmatch(file.name)
        if number:
            text = file.read_text(encoding="utf-8")
            needs = _NEEDS.match(text)
            assert needs, f"{file.name} does not say what it needs"
            found.append(Migration(int(number[1]), file.name, text, int(needs[1])))
    return found


def migrate(connection: Connection, place: str, service_user: str) -> list[str]:
    """Apply what is missing, all of it or nothing; gives the names of that.

    `service_user` may work with the tables afterwards, and not change them.
    """
    known = migrations()
    with connection.transaction():
        connection.execute(_LOCK)
        connection.execute("create schema if not exists bernstein")
        connection.execute(_TABLE)
        applied = _applied(connection)
        for each in known:
            if applied.get(each.number, each.sha256) != each.sha256:
                raise StoreFailed(
                    f"{place}: migration {each.name} was applied with another text; it was changed"
                    " after its release: install the release that the database was made with",
                    path=place,
                )
        missing = [each for each in known if each.number not in applied]
        connection.execute("set local search_path = bernstein")
        for each in missing:
            connection.execute(each.text.encode())
            connection.execute(
                "insert into migrations (number, name, sha256, needs) values (%s, %s, %s, %s)",
                [each.number, each.name, each.sha256, each.needs],
            )
        _grant(connection, service_user)
    return [each.name for each in missing]


def check_schema(connection: Connection, place: str) -> int:
    """The newest migration's number. Raises StoreFailed where this program must not work."""
    newest = migrations()[-1].number
    there = connection.execute("select to_regclass('bernstein.migrations')").fetchone()
    rows = []
    if there is not None and there[0] is not None:
        rows = connection.execute("select number, needs from bernstein.migrations").fetchall()
    number = max((number for number, _ in rows), default=0)
    if number < newest:
        raise StoreFailed(
            f"{place} has the tables of migration {number}, and {newest} is needed:"
            " run `bernstein admin migrate`",
            path=place,
        )
    needs = max(needs for _, needs in rows)
    if needs > newest:
        raise StoreFailed(
            f"{place} needs programs that know migration {needs}, and this one knows {newest}:"
            " install a newer release",
            path=place,
        )
    return int(number)


def check_user(connection: Connection, place: str) -> None:
    """Refuse a user whom row-level security does not hold."""
    row = connection.execute(
        "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
    ).fetchone()
    if row is None or row[0]:
        raise StoreFailed(
            f"{place}: the user of [store] url is a superuser or may bypass row-level security,"
            " so that nothing would keep origins apart; make a plain one:"
            " create role NAME login",
            path=place,
        )


def _applied(connection: Connection) -> dict[int, str]:
    rows = connection.execute("select number, sha256 from bernstein.migrations").fetchall()
    return dict(rows)


def _grant(connection: Connection, service_user: str) -> None:
    user = sql.Identifier(service_user)
    for text in (
        "grant usage on schema bernstein to {}",
        "grant select, insert, update, delete on all tables in schema bernstein to {}",
        "revoke insert, update, delete on bernstein.migrations from {}",
        "grant usage on all sequences in schema bernstein to {}",
    ):
        connection.execute(sql.SQL(text).format(user))
