"""What a reader of files alone can say of a run besides its journal and seal (`--offline`).

Its MACs and the signer's ledger are for the services to ask: the spine can contradict here, never
vouch, and a ledger that is gone is not missed.
"""

import os
from pathlib import Path
from typing import Final

from bernstein_cli.local_rows import LocalRows, local_path, small_file
from bernstein_formats import paths
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
        self._rows = LocalRows(sdd_dir)

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
        said.miss_rows("journal", self._rows.missing(paths.journal_path(run_id)))
        said.miss_rows("spine", self._rows.missing(paths.spine_path(run_id)))
        said.miss_rows("audit log", self._rows.missing_events())
        said.note_losses(run_id, small_file(self._sdd_dir, paths.LOSSES))

    def _ask_seals(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        RememberedSeals(
            run_id=run_id,
            seal=seal,
            has_seal_file=(self._sdd_dir / paths.seal_path(run_id)).exists(),
            newest=newest_seal(small_file(self._sdd_dir, paths.CHECKPOINT), self._origin()),
            interim=small_file(self._sdd_dir, paths.interim_seal_path(run_id)),
        ).tell(said)

    def _origin(self) -> str:
        return origin_of(places_for(self._sdd_dir, os.environ), os.environ)

    def _ask_spine(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        try:
            with open_regular(local_path(self._sdd_dir, paths.spine_path(run_id))) as file:
                found = verify_spine(iter(lambda: file.read(_CHUNK_BYTES), b""), None)
        except FileNotFoundError:
            return
        if found.errors:
            said.notes.append(f"the spine's seal proves nothing: {found.errors[0]}")
        elif found.sealed_head is not None:
            said.compare("the seal in the spine", found.sealed_head, None, vouches=False)
