"""Finds the line of a TOML file that an error is about; the parser does not tell."""

import re

from bernstein_formats.errors import InvalidInput


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
