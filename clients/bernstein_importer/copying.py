"""Whole runs from a state folder into a store: every file as it is, the seal last."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bernstein_client.copies import CopiesClient
from bernstein_formats.errors import ForeignWriter
from bernstein_formats.paths import run_folders, seal_path
from bernstein_importer.source import Source
from bernstein_runtime.limits import PIECE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Copied:
    """How many files a run has, and how many of them were not in the store."""

    files: int
    new_files: int


def copy_run(source: Source, copies: CopiesClient, run_id: str) -> Copied:
    """Copy one run; again, and nothing changes. Raises RunExists where the store has others."""
    names = [name for folder in run_folders(run_id) for name in source.files_below(folder)]
    names.sort(key=lambda name: name == seal_path(run_id))
    new = [copies.import_file(run_id, name, partial(_pieces, source, name)) for name in names]
    return Copied(len(names), sum(new))


def _pieces(source: Source, name: str) -> Iterator[bytes]:
    with source.open(name) as file:
        if file is None:
            raise ForeignWriter(f"{source.sdd_dir / name} was removed while it was copied")
        for start in range(0, file.look.size, PIECE_BYTES_MAX):
            yield file.read(start, min(file.look.size, start + PIECE_BYTES_MAX))
