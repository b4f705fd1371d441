"""Tables of text: columns padded to their widest cell and cut where the terminal ends."""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bernstein_cli.output import printable

_GAP: Final = "  "
_ELSEWHERE_WIDTH: Final = 400


def width() -> int:
    """Columns to fill: the terminal's; plenty where stdout is none, unless COLUMNS says so."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return shutil.get_terminal_size((_ELSEWHERE_WIDTH, 24)).columns


def table_lines(names: Sequence[str], rows: Iterable[Sequence[str]], columns: int) -> Iterator[str]:
    """The lines of a table that is short enough to be measured as a whole."""
    cells = [[printable(cell) for cell in row] for row in (names, *rows)]
    widths = [max(_size(row[column]) for row in cells) for column in range(len(names))]
    for row in cells:
        yield fitted(row, widths, columns)


def fitted(cells: Sequence[str], widths: Sequence[int], columns: int) -> str:
    """One line; a cell that is too wide for its column is cut, and so is the line."""
    padded = [_padded(printable(cell), size) for cell, size in zip(cells, widths, strict=True)]
    return _cut(_GAP.join(padded).rstrip(), columns)


def _padded(text: str, size: int) -> str:
    text = _cut(text, size)
    return text + " " * (size - _size(text))


def _cut(text: str, size: int) -> str:
    if _size(text) <= size:
        return text
    kept, used = [], 1
    for character in text:
        used += _size(character)
        if used > size:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _size(text: str) -> int:
    """Columns that a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )
