"""Letting old runs go: only sealed ones that nobody reads; what proves them stays."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError
from bernstein_formats.retention import JOURNAL, LASTING, runs_to_prune
from bernstein_journal.runs import Runs
from bernstein_store.store import Store


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, or would go, oldest first; which old runs stay, and why; how many are left."""

    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    left_count: int


class Reading:
    """Which runs are being read by calls of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @contextmanager
    def of(self, *run_ids: str) -> Iterator[None]:
        """While it lasts, the runs stay."""
        with self._lock:
            self._counts.update(run_ids)
        try:
            yield
        finally:
            with self._lock:
                self._counts.subtract(run_ids)

    def is_read(self, run_id: str) -> bool:
        with self._lock:
            return self._counts[run_id] > 0


class Pruner:
    """Removes runs; one call at a time."""

    def __init__(
        self, store: Store, runs: Runs, reading: Reading, is_as_sealed: Callable[[str], bool]
    ) -> None:
        """`is_as_sealed` says whether a run's journal is the one that its seal.json commits to."""
        self._is_as_sealed = is_as_sealed
        self._store = store
        self._runs = runs
        self._reading = reading
        self._lock = threading.Lock()

    def prune(self, keep: int, *, preview: bool) -> Pruned:
        """Remove the oldest runs until `keep` stay (0: all stay), or say which ones would go."""
        with self._lock:
            oldest_first = list(reversed(self._runs.newest_first()))
            old = runs_to_prune(oldest_first, keep)
            replayed = self._being_replayed(oldest_first)
            removed, kept = list[str](), list[tuple[str, str]]()
            for run_id in old:
                reason = self._reason_to_stay(run_id, replayed)
                if not reason and not preview:
                    reason = self._remove(run_id)
                if reason:
                    kept.append((run_id, reason))
                else:
                    removed.append(run_id)
            return Pruned(tuple(removed), tuple(kept), len(oldest_first) - len(removed))

    def _reason_to_stay(self, run_id: str, replayed: set[str]) -> str:
        if not self._store.is_own_folder(run_id):
            return "its folder is a link"
        if self._store.size(paths.seal_path(run_id)) is None:
            return "it is not sealed"
        if run_id in replayed:
            return "a replay of it is not finished"
        if self._reading.is_read(run_id):
            return "it is being read"
        if not self._is_as_sealed(run_id):
            return "its journal is not what was sealed; look at it with `replay --verify`"
        return ""

    def _remove(self, run_id: str) -> str:
        """Remove all but what proves the run; gives the reason when that is not possible."""
        try:
            self._store.remove_run(run_id, LASTING, JOURNAL)
        except BernsteinError as error:
            return error.message
        return ""

    def _being_replayed(self, run_ids: list[str]) -> set[str]:
        """Runs whose recording an unfinished replay may still need."""
        replayed = set()
        for run_id in run_ids:
            if self._store.size(paths.seal_path(run_id)) is None:
                replayed.add(self._source(run_id))
        return replayed

    def _source(self, run_id: str) -> str:
        try:
            value = json.loads(self._store.get(paths.replay_path(run_id)) or b"{}")
        except (ValueError, RecursionError):
            return ""
        return str(value.get("replay_of", "")) if isinstance(value, dict) else ""
