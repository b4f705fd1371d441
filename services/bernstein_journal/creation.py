"""Making runs: an id that no other host makes, the folder, the files that say what the run is."""

import secrets
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, ForeignWriter, InvalidInput, RunExists
from bernstein_runtime.clock import Clock
from bernstein_store.store import Log, Mark, Store

# One line a run; its marks remember who asked for it, so that a retry gets the same run.
CREATED = "svc/created.log"
RESERVED_IDS = {"latest", "list", "diff", "repair", "export", "publish", "verify", "debug"}


class RunMaker:
    """Makes one run at a time."""

    def __init__(self, store: Store, clock: Clock, check: Callable[[], None]) -> None:
        """`check` raises when a run that is begun now could not be finished."""
        self._store = store
        self._clock = clock
        self._check = check
        self._lock = threading.Lock()

    def make(self, run_id: str, request_id: str, metadata: bytes, replay: bytes) -> str:
        """Raises RunExists, InvalidInput."""
        with self._lock:
            log = self._store.open_log(CREATED)
            try:
                chosen = self._chosen(log, run_id, request_id)
            finally:
                log.close()
            return self._complete(chosen, metadata, replay)

    def _chosen(self, log: Log, run_id: str, request_id: str) -> str:
        """The id of the run, written down with who asked for it."""
        known = {mark.request_id: mark.answer for mark in log.marks}
        while request_id not in known:
            self._check()
            chosen = run_id or self._new_id()
            self._check_free(chosen, known.values())
            line = f"{chosen}\n".encode()
            try:
                log.append(line, [Mark(request_id, log.size + len(line), chosen)])
            except ForeignWriter:
                # Another journal made a run.
                known |= {mark.request_id: mark.answer for mark in log.catch_up()}
            else:
                return chosen
        return known[request_id]

    def _check_free(self, run_id: str, promised: Collection[str]) -> None:
        paths.check_run_id(run_id)
        if run_id in RESERVED_IDS:
            raise InvalidInput(f"{run_id!r} is a word of the replay command; choose another id")
        if run_id in promised or self._store.has_run(run_id):
            raise RunExists(f"run {run_id} exists already; choose another id", run_id=run_id)

    def _complete(self, run_id: str, metadata: bytes, replay: bytes) -> str:
        """Whatever of the run is not there yet; a folder that stays empty goes again."""
        is_new = not self._store.has_run(run_id)
        if is_new:
            with suppress(RunExists):  # another journal completes the same request
                self._store.make_run(run_id)
        try:
            self._put_files(run_id, metadata, replay)
        except BernsteinError:
            if is_new:
                self._store.remove_run(run_id, (), "")
            raise
        return run_id

    def _put_files(self, run_id: str, metadata: bytes, replay: bytes) -> None:
        for name, content in (
            (paths.metadata_path(run_id), metadata),
            (paths.replay_path(run_id), replay),
        ):
            if content and self._store.get(name) is None:
                self._store.put(name, content)

    def _new_id(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)
        return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
