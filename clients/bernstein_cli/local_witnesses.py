"""What a reader of files alone can say of a run besides its journal and seal (`--offline`).

Its MACs and the signer's ledger are for the services to ask: the spine can contradict here, never
vouch, and a ledger that is gone is not missed.
"""

import gzip
import os
from pathlib import Path
from typing import IO, Final, cast

from bernstein_cli.step_source import local_path
from bernstein_formats import paths
from bernstein_formats.acknowledged import (
    MARKS_FOLDER,
    Acknowledged,
    acknowledged,
    last_line,
    marked_in,
    marks_path,
    missing,
    read_marks,
)
from bernstein_formats.audit_log import ARCHIVE_FOLDER, AUDIT_FOLDER
from bernstein_formats.errors import BernsteinError
from bernstein_formats.journal_verdict import JournalVerification
from bernstein_formats.seal import Seal
from bernstein_formats.spine_verify import verify_spine
from bernstein_formats.testimony import RememberedSeals, Testimony, newest_seal
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import places_for
from bernstein_runtime.regular_file import open_regular

_CHUNK_BYTES: Final = 1024 * 1024


class LocalWitnesses:
    """The files of one state folder."""

    def __init__(self, sdd_dir: Path) -> None:
        self._sdd_dir = sdd_dir

    def question(self, run_id: str, journal: JournalVerification, seal: Seal | None) -> Testimony:
        """Ask all of them about a verified journal; `seal` is what was found beside it."""
        said = Testimony(journal)
        for ask in (self._ask_rows, self._ask_seals, self._ask_spine):
            try:
                ask(run_id, seal, said)
            except (BernsteinError, OSError, EOFError) as error:
                said.notes.append(f"a witness could not be asked: {error}")
        return said

    def _ask_rows(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        said.miss_rows("journal", self._missing(paths.journal_path(run_id)))
        said.miss_rows("spine", self._missing(paths.spine_path(run_id)))
        marks = self._sdd_dir / MARKS_FOLDER
        names = [path.name for path in marks.iterdir()] if marks.is_dir() else []
        said.miss_rows("audit log", self._missing_events(marked_in(AUDIT_FOLDER, names)))
        said.note_losses(run_id, self._small(paths.LOSSES))

    def _missing_events(self, names: list[str]) -> str:
        for name in sorted(names, reverse=True):
            if self._known(name).size:
                packed = f"{ARCHIVE_FOLDER}/{name.removeprefix(f'{AUDIT_FOLDER}/')}.gz"
                is_packed = not (self._sdd_dir / name).exists()
                return self._missing(name, packed if is_packed else None)
        return ""

    def _missing(self, name: str, packed: str | None = None) -> str:
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

    def _known(self, name: str) -> Acknowledged:
        marks = self._small(marks_path(name))
        return acknowledged(read_marks(marks or b""))

    def _ask_seals(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        RememberedSeals(
            run_id=run_id,
            seal=seal,
            has_seal_file=(self._sdd_dir / paths.seal_path(run_id)).exists(),
            newest=newest_seal(self._small(paths.CHECKPOINT), self._origin()),
            interim=self._small(paths.interim_seal_path(run_id)),
        ).tell(said)

    def _origin(self) -> str:
        return origin_of(places_for(self._sdd_dir, os.environ), os.environ)

    def _ask_spine(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        try:
            with self._opened(paths.spine_path(run_id)) as file:
                found = verify_spine(iter(lambda: file.read(_CHUNK_BYTES), b""), None)
        except FileNotFoundError:
            return
        if found.errors:
            said.notes.append(f"the spine's seal proves nothing: {found.errors[0]}")
        elif found.sealed_head is not None:
            said.compare("the seal in the spine", found.sealed_head, None, vouches=False)

    def _opened(self, name: str) -> IO[bytes]:
        return open_regular(local_path(self._sdd_dir, name))

    def _small(self, name: str) -> bytes | None:
        try:
            with self._opened(name) as file:
                return file.read()
        except FileNotFoundError:
            return None


def _unpacked(file: IO[bytes], packed: str | None) -> IO[bytes]:
    return file if packed is None else cast("IO[bytes]", gzip.GzipFile(fileobj=file))
