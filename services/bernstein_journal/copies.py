"""Whole runs out of a store and into one: every file as it is, nothing computed or put in order."""

from collections.abc import Iterator
from itertools import chain

from bernstein_formats.errors import RunExists
from bernstein_formats.paths import check_run_file, run_folders
from bernstein_store.store import Store


class Copies:
    """Safe for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def files(self, run_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Name and bytes of each file of a run, as far as it goes now."""
        for folder in run_folders(run_id):
            for below in self._store.names_below(folder):
                name = f"{folder}/{below}"
                yield name, self._store.read(name, 0, self._store.size(name))

    def take_in(self, run_id: str, name: str, parts: Iterator[bytes]) -> tuple[int, bool]:
        """Store a file; its size, and whether it is new. Raises RunExists for other bytes."""
        check_run_file(run_id, name)
        size = self._store.size(name)
        if size is None:
            return self._store.put_parts(name, parts), True
        if not _are_equal(parts, self._store.read(name, 0, size)):
            raise RunExists(
                f"{self._store.where(name)} is there already with other bytes, and stays; import"
                " the run for another origin",
                run_id=run_id,
                path=name,
            )
        return size, False


def _are_equal(left: Iterator[bytes], right: Iterator[bytes]) -> bool:
    """Compare two texts that come in chunks of any size."""
    held = b""
    for chunk in left:
        while len(held) < len(chunk):
            more = next(right, None)
            if more is None:
                return False
            held += more
        if not held.startswith(chunk):
            return False
        held = held[len(chunk) :]
    return not held and not any(chain(right))
