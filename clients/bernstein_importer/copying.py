"""Whole runs from a state folder into a store: every file as it is, the seal last."""

from dataclasses import dataclass
from functools import partial

from bernstein_client.copies import CopiesClient
from bernstein_formats.paths import run_folders, seal_path
from bernstein_importer.source import Source


@dataclass(frozen=True, slots=True)
class Copied:
    """How many files a run has, and how many of them were not in the store."""

    files: int
    new_files: int


def copy_run(source: Source, copies: CopiesClient, run_id: str) -> Copied:
    """Copy one run; again, and nothing changes. Raises RunExists where the store has others."""
    names = [name for folder in run_folders(run_id) for name in source.files_below(folder)]
    names.sort(key=lambda name: name == seal_path(run_id))
    new = [copies.import_file(run_id, name, partial(source.pieces, name)) for name in names]
    return Copied(len(names), sum(new))
