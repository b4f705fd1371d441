"""The recordings that are open for appending: one a run, shared by its sessions."""

import threading
from collections import OrderedDict

from bernstein_recorder.recording import Recording
from bernstein_runtime.clock import Clock
from bernstein_store.store import Store

# An importer appends again and again: reading its files each time would be quadratic.
KEPT_OPEN = 8


class Recordings:
    """Open recordings by run. Thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Recording] = OrderedDict()
        self._users: dict[str, int] = {}

    def take(self, run_id: str) -> Recording:
        """The run's recording, opened if need be; give it back with `release`."""
        with self._lock:
            found = self._open.get(run_id)
            if found is not None and found.failure is not None:
                found.close()
                found = None
            if found is None:
                self._open.pop(run_id, None)
                found = self._open[run_id] = Recording(self._store, run_id, self._clock)
            self._users[run_id] = self._users.get(run_id, 0) + 1
            self._open.move_to_end(run_id)
            return found

    def release(self, run_id: str) -> None:
        """No longer needed by one user."""
        with self._lock:
            self._users[run_id] -= 1
            unused = [name for name in self._open if not self._users.get(name)]
            for name in unused[: max(0, len(unused) - KEPT_OPEN)]:
                self._users.pop(name, None)
                self._open.pop(name).close()

    def find(self, run_id: str) -> Recording | None:
        """The run's recording if a session records into it now; not for appending.

        One that is merely kept open does not count: others may have changed the file since.
        """
        with self._lock:
            return self._open[run_id] if self._users.get(run_id) else None

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()
