"""A TOML file that is a list of tables: read, and each error with its line, which the parser does
not tell."""

import re
import tomllib
from typing import Any, Final

from bernstein_formats.errors import InvalidInput

TABLES_MAX: Final = 10_000


class TomlLines:
    """The lines of a file that is a list of tables of one name, and perhaps single ones."""

    def __init__(self, source: str, text: str, table: str) -> None:
        self._source = source
        self._lines = text.splitlines()
        begin = re.compile(rf"\s*\[\[\s*{re.escape(table)}")
        self._tables = [number for number, line in enumerate(self._lines) if begin.match(line)]

    def wrong(self, member: str, what: str, table: int | None = None) -> InvalidInput:
        """The error about a member of the table with this number."""
        start = 0
        if table is not None and table < len(self._tables):
            start = self._tables[table]
        line = self._first(member, start)
        return InvalidInput(f"{self._source}, line {line}: {what}", path=self._source, line=line)

    def _first(self, member: str, start: int) -> int:
        """Counted from 1; where the table begins if the member has no line of its own."""
        pattern = re.compile(rf"""\s*\[*\s*["']?{re.escape(member)}["']?\s*[=\].]""")
        for number in range(start, len(self._lines)):
            if number > start and number in self._tables and start:
                break
            if pattern.match(self._lines[number]):
                return number + 1
        return start + 1


def tables_in(
    text: str, source: str, table: str, page: str, *, others: tuple[str, ...] = ()
) -> tuple[list[dict[str, Any]], dict[str, Any], TomlLines]:
    """The tables of one name, the whole document, and its lines; `others` may be beside them.

    `page` explains the file. Raises InvalidInput that names `source`, the line and what is wrong.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{source}: {error}; see {page}", path=source) from error
    lines = TomlLines(source, text, table)
    for name in document:
        if name not in (table, *others):
            known = f"there are {' and '.join((table, *others))}" if others else f"there is {table}"
            raise lines.wrong(name, f"there is no table {name!r}; {known}")
    tables = document.get(table, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise lines.wrong(table, f"write each {table} as a table of its own, under [[{table}]]")
    if len(tables) > TABLES_MAX:
        raise lines.wrong(table, f"{len(tables)} of them; at most {TABLES_MAX} are taken")
    return tables, document, lines
