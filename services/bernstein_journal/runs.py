"""What is known of the runs without verifying them: list, newest, one."""

from collections.abc import Iterator
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, InvalidInput, RunNotFound, StoreFailed
from bernstein_formats.journal_reader import count_lines
from bernstein_formats.retention import JOURNAL_GONE, lost_journal
from bernstein_formats.run_choice import LATEST, latest, newest_first, recorded_start
from bernstein_store.store import Store

FIRST_LINE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run as its folder shows it."""

    run_id: str
    row_count: int
    size_bytes: int
    metadata_json: bytes
    replay_json: bytes
    seal_json: bytes
    damage: str


class Runs:
    """Read-only; safe for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # The ids of the listing that was begun last.
        self._listing: list[str] = []

    def resolve(self, run_id: str) -> str:
        """The run that is meant, never a link to it. Raises RunNotFound."""
        if run_id == LATEST and not self._store.has_run(LATEST):
            newest = latest(self.newest_first())
            if newest is None:
                raise RunNotFound("there is no run yet; record one with `bernstein run PLAN`")
            return newest
        run_id = self._store.real_run(run_id)
        if self._store.size(paths.journal_path(run_id)) is None:
            raise RunNotFound(
                f"there is no journal of run {run_id}; see `bernstein replay list`", run_id=run_id
            )
        return run_id

    def newest_first(self) -> list[str]:
        """Ids of all runs that have a journal, by their recorded start, newest first."""
        return newest_first({run_id: self._start(run_id) for run_id in self._with_journal()})

    def page(self, token: str, size: int) -> tuple[list[str], str]:
        """Ids of a listing from `token` on, and the token of the next page; empty at the end.

        Pages of one listing are of the ids that its first page found: to order all runs anew for
        each page would cost the square of their number.
        """
        ids = self._listing
        if not token or token not in ids:
            ids = self._listing = self.newest_first() + self.without_journal()
        start = ids.index(token) if token in ids else 0
        end = start + size
        return ids[start:end], ids[end] if end < len(ids) else ""

    def without_journal(self) -> list[str]:
        """Ids of sealed runs whose journal is gone."""
        return sorted(filter(self._lost_journal, self._store.run_ids()))

    def _lost_journal(self, run_id: str) -> bool:
        try:
            if self._store.size(paths.journal_path(run_id)) is not None:
                return False
            return lost_journal(self._store.names(paths.run_folder(run_id)))
        except (InvalidInput, StoreFailed):
            return False  # no run, or one that is listed with what is wrong with it

    def listed(self, run_id: str) -> RunFacts:
        """The facts of a run, or what keeps them from being read: others are to be listed still."""
        try:
            if self._lost_journal(run_id):
                return RunFacts(run_id, 0, 0, *self._beside(run_id), damage=JOURNAL_GONE)
            return self.facts(run_id)
        except BernsteinError as error:
            return RunFacts(run_id, 0, 0, b"", b"", b"", damage=error.message)

    def facts(self, run_id: str) -> RunFacts:
        """Raises RunNotFound, StoreFailed, LimitExceeded."""
        run_id = self.resolve(run_id)
        count, damage = count_lines(self._store.read(paths.journal_path(run_id)))
        metadata, replay, seal = self._beside(run_id)
        return RunFacts(
            run_id=run_id,
            row_count=count,
            size_bytes=self._store.size(paths.journal_path(run_id)) or 0,
            metadata_json=metadata,
            replay_json=replay,
            seal_json=seal,
            damage=damage,
        )

    def _beside(self, run_id: str) -> tuple[bytes, bytes, bytes]:
        """Metadata, replay note and seal, as far as they are there."""
        files = (paths.metadata_path, paths.replay_path, paths.seal_path)
        metadata, replay, seal = (self._store.get(path(run_id)) or b"" for path in files)
        return metadata, replay, seal

    def _with_journal(self) -> Iterator[str]:
        for run_id in self._store.run_ids():
            try:
                found = self._store.size(paths.journal_path(run_id)) is not None
            except InvalidInput:
                continue  # not a run: its name or its link says so
            except StoreFailed:
                found = True  # what is there is no journal, which the list says
            if found:
                yield run_id

    def _start(self, run_id: str) -> float:
        """When it began; as early as can be where that cannot be read."""
        try:
            metadata = self._store.get(paths.metadata_path(run_id)) or b""
            return recorded_start(metadata, self._first_line(run_id))
        except StoreFailed:
            return recorded_start(b"", b"")

    def _first_line(self, run_id: str) -> bytes:
        head = b"".join(self._store.read(paths.journal_path(run_id), 0, FIRST_LINE_BYTES))
        return head.split(b"\n", 1)[0]
