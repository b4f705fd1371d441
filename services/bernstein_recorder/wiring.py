"""The recorder's parts for one origin, put together."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bernstein_recorder.exchanges import Exchanges
from bernstein_recorder.kept_answers import KeptAnswers
from bernstein_recorder.providers import Providers
from bernstein_recorder.recorded_index import RecordedIndexes
from bernstein_recorder.recorded_runs import RecordedRuns
from bernstein_recorder.recordings import Recordings
from bernstein_recorder.service import RecorderService
from bernstein_recorder.sessions import Sessions
from bernstein_runtime.clock import Clock
from bernstein_runtime.config import RecorderConfig
from bernstein_store.run_records import RunRecords
from bernstein_store.store import Store, Stores


@dataclass(frozen=True, slots=True)
class Shared:
    """What all origins of a process share."""

    own: str
    stores: Stores
    config: RecorderConfig
    clock: Clock
    # Run ids are an origin's own, so each but ours has a folder of its own below these.
    indexes: Path
    quarantine: Path

    def below(self, folder: Path, origin: str) -> Path:
        """An origin's part of a folder."""
        if origin == self.own:
            return folder
        return folder / "origins" / sha256(origin.encode()).hexdigest()[:32]


class RecorderWiring:
    """See `bernstein_runtime.per_origin.Wiring`."""

    def __init__(self, shared: Shared, origin: str, quarantine: Store) -> None:
        clock = shared.clock
        self._store = store = shared.stores.of(origin)
        self.records = RunRecords(store, "recorder", clock)
        self._sessions = Sessions(
            RecordedRuns(store, RecordedIndexes(store, shared.below(shared.indexes, origin))),
            Recordings(store, clock),
            Providers(shared.config, clock),
            KeptAnswers(store, clock),
            clock,
        )
        self._exchanges = Exchanges(store, quarantine)
        self.servicer = RecorderService(self._sessions, self._exchanges)

    def check(self) -> None:
        self._store.check()

    def busy(self) -> bool:
        return self._sessions.busy()

    def end_streams(self) -> None:
        """They end."""

    def close(self) -> None:
        self._sessions.finish()
        self._exchanges.close()
        self._store.close()
