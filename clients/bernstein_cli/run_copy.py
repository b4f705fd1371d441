"""A run's files in a folder of the user's: all of them, or none."""

import secrets
import shutil
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from bernstein_cli.whole_file import replacing
from bernstein_formats.errors import RunExists, StoreFailed
from bernstein_formats.paths import check_run_file, run_folders


def write_run(run_id: str, pieces: Iterable[tuple[str, bytes]], folder: Path) -> list[str]:
    """Write files that come as names and pieces; gives their names. Raises RunExists, StoreFailed.

    They are written beside their place and put there last, on stable storage.
    """
    places = [folder / each for each in run_folders(run_id)]
    for place in places:
        if place.exists():
            raise RunExists(f"{place} is there already and stays; name another folder", path=place)
    partial = folder / f".{secrets.token_hex(8)}.partial"
    try:
        names = [
            _write(run_id, name, (data for _, data in group), partial)
            for name, group in groupby(pieces, itemgetter(0))
        ]
        for place in reversed(places):  # the run itself at the end
            written = partial / place.relative_to(folder)
            if written.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                written.rename(place)
    except OSError as error:
        raise StoreFailed(f"cannot write to {folder}: {error.strerror}", path=folder) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return names


def _write(run_id: str, name: str, parts: Iterable[bytes], partial: Path) -> str:
    check_run_file(run_id, name)
    path = partial / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.writelines(parts)
    return name
