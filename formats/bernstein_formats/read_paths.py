"""Which files a run says that it read: the paths its rows name, sorted into inside and outside.

Rules: docs/formats/event-journal.md, section 16. Purely lexical: no link is followed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from posixpath import isabs, join, normpath, relpath

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import JournalError, RowMalformed
from bernstein_formats.event_journal import ENVELOPE_NAMES
from bernstein_formats.journal_reader import Row, load_events_strictly
from bernstein_formats.journal_verify import verify_journal

_PATH_NAMES = ("path", "file_path")
_NESTED_NAMES = ("args", "frame")


class NoReadPaths(StrEnum):
    """Why a journal says nothing about what was read."""

    MISSING = "journal_missing"
    EMPTY = "journal_empty"
    MALFORMED = "malformed"
    BROKEN = "broken_chain"


@dataclass(frozen=True, slots=True)
class ReadPaths:
    """Sorted and without repetitions: below the root, relative; outside of it, absolute."""

    read_paths: tuple[str, ...]
    out_of_tree: tuple[str, ...]
    journal_head: str


def read_paths(chunks: Iterable[bytes] | None, root: str) -> ReadPaths:
    """What a whole and consistent journal names; `chunks` is None where there is no journal.

    Raises JournalError whose metadata `kind` is one of NoReadPaths.
    """
    if chunks is None:
        raise _nothing(NoReadPaths.MISSING, "there is no journal")
    parts = list(chunks)
    try:
        rows = load_events_strictly(parts)
    except RowMalformed as error:
        raise _nothing(NoReadPaths.MALFORMED, error.message) from None
    if not rows:
        raise _nothing(NoReadPaths.EMPTY, "the journal holds no row")
    found = verify_journal(parts)
    if not found.chain_consistent:
        raise _nothing(NoReadPaths.BROKEN, "; ".join(found.errors))
    inside: set[str] = set()
    outside: set[str] = set()
    for row in rows:
        for name in _named(row):
            path = normpath(name if isabs(name) else join(root, name))
            relative = relpath(path, root)
            if relative == ".." or relative.startswith("../"):
                outside.add(path)
            elif relative != ".":
                inside.add(relative)
    return ReadPaths(tuple(sorted(inside)), tuple(sorted(outside)), found.head)


def _named(row: Row) -> Iterator[str]:
    payload = {name: value for name, value in row.items() if name not in ENVELOPE_NAMES}
    for place in (payload, *(payload.get(name) for name in _NESTED_NAMES)):
        yield from _texts(place)


def _texts(place: JsonValue) -> Iterator[str]:
    if isinstance(place, dict):
        for name in _PATH_NAMES:
            value = place.get(name)
            if isinstance(value, str) and value:
                yield value


def _nothing(kind: NoReadPaths, text: str) -> JournalError:
    return JournalError(f"what was read cannot be told: {text}", kind=kind.value)
