"""What is gone of the logs below a state folder, as the journal's marks say: for `--offline`."""

import gzip
import os
from pathlib import Path
from typing import IO, cast

from bernstein_formats.acknowledged import (
    MARKS_FOLDER,
    WHAT_TO_DO,
    Acknowledged,
    acknowledged,
    last_line,
    marked_in,
    marks_path,
    missing,
    read_marks,
    unreadable,
)
from bernstein_formats.audit_log import ARCHIVE_FOLDER, AUDIT_FOLDER
from bernstein_formats.errors import BernsteinError, RowsMissing, StoreFailed
from bernstein_runtime.disk import in_words
from bernstein_runtime.regular_file import open_regular


class LocalRows:
    """The twin of the journal's `AcknowledgedRows` for a reader of files."""

    def __init__(self, sdd_dir: Path) -> None:
        self._sdd_dir = sdd_dir

    def check(self, name: str) -> None:
        """RowsMissing where rows of a log are gone."""
        what = self.missing(name)
        if what:
            raise RowsMissing(f"{name}: {what}; {WHAT_TO_DO}", path=name)

    def missing(self, name: str) -> str:
        """What is gone from a log; "" if nothing is."""
        return self._missing(name, None)

    def missing_events(self) -> str:
        """What is gone from the end of the audit log; all before it is for the chain to tell."""
        marks = self._sdd_dir / MARKS_FOLDER
        names = [path.name for path in marks.iterdir()] if marks.is_dir() else []
        for name in sorted(marked_in(AUDIT_FOLDER, names), reverse=True):
            if self._known(name).size:
                packed = f"{ARCHIVE_FOLDER}/{name.removeprefix(f'{AUDIT_FOLDER}/')}.gz"
                is_packed = not (self._sdd_dir / name).exists()
                return self._missing(name, packed if is_packed else None)
        return ""

    def _missing(self, name: str, packed: str | None) -> str:
        known = self._known(name)
        if not known.size:
            return ""
        try:
            with self._opened(packed or name) as stored, _unpacked(stored, packed) as file:
                size = file.seek(0, os.SEEK_END) if packed is None else file.seek(known.size)

                def read(start: int, end: int) -> bytes:
                    file.seek(start)
                    return file.read(end - start)

                return missing(known, size, last_line(read, min(known.size, size)))
        except FileNotFoundError:
            return missing(known, 0, b"")
        except (BernsteinError, OSError, EOFError) as error:
            return unreadable(known, in_words(error))

    def _known(self, name: str) -> Acknowledged:
        return acknowledged(read_marks(small_file(self._sdd_dir, marks_path(name)) or b""))

    def _opened(self, name: str) -> IO[bytes]:
        return open_regular(local_path(self._sdd_dir, name))


def small_file(sdd_dir: Path, name: str) -> bytes | None:
    """The content of a file below the state folder; None where there is none."""
    try:
        with open_regular(local_path(sdd_dir, name)) as file:
            return file.read()
    except FileNotFoundError:
        return None


def local_path(sdd_dir: Path, name: str) -> Path:
    """Where `name` is. Raises StoreFailed when links lead out of the state folder."""
    path = Path(os.path.realpath(sdd_dir / name))
    if not path.is_relative_to(os.path.realpath(sdd_dir)):
        raise StoreFailed(f"{sdd_dir / name} is a link that leads out of {sdd_dir}", path=path)
    return path


def _unpacked(file: IO[bytes], packed: str | None) -> IO[bytes]:
    return file if packed is None else cast("IO[bytes]", gzip.GzipFile(fileobj=file))
