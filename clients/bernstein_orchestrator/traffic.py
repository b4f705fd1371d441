"""What the programs of one run say to their models: recorded lane by lane, or answered so."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bernstein_agent.locked_in import Surroundings
from bernstein_agent.run_lanes import OpenLane, RunLanes
from bernstein_agent.sandbox import Place, Sandbox
from bernstein_agent.work_tree import Kept
from bernstein_client.proxy import LaneAccount
from bernstein_formats.agent_environment import Environment
from bernstein_formats.errors import ReplayMissError, StoreFailed
from bernstein_orchestrator.events import Event
from bernstein_orchestrator.options import RunOptions


@dataclass(frozen=True, slots=True)
class Walls:
    """Where a replay locks its programs in; `around` is None for those that were not recorded."""

    top: Path
    around: Surroundings | None = None

    def sandbox(self, folder: Path, base_url: str, environ: Mapping[str, str]) -> Sandbox:
        """For a program that works in `folder`, below the top."""
        if self.around is None:
            return Sandbox(Place(folder=folder, trees=((self.top, self.top),)))
        seen = Path(self.around.recorded.folder) / folder.relative_to(self.top)
        return Sandbox(self.around.place(base_url, environ, seen))

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a program's variables are inside."""
        return dict(environ) if self.around is None else self.around.environ(environ)


@dataclass(frozen=True, slots=True)
class Seen:
    """What programs see when they are recorded, to be stored when their run has begun."""

    environment: Environment
    kept: Kept


class Traffic:
    """The lanes of one run. Lanes are opened by agents' threads, the rest is the loop's."""

    def __init__(
        self, lanes: RunLanes, options: RunOptions, run_id: str, surroundings: Seen | Event
    ) -> None:
        """`surroundings` are seen now, or for a replay the row that binds the recorded ones."""
        self.accounts: list[LaneAccount] = []
        self._surroundings = surroundings
        self._lanes = lanes
        self._run_id = run_id
        self._replay_run_id = options.replay_run_id
        self._providers = options.providers
        self._lock = threading.Lock()
        self._open: set[OpenLane] = set()

    def begin(self) -> Event:
        """The row that binds the programs' surroundings; what it speaks of is stored."""
        found = self._surroundings
        if not isinstance(found, Seen):
            return found
        return self._lanes.store(self._run_id, found.environment, found.kept)

    def open(self, agent_id: str) -> OpenLane:
        """An attempt's lane. Raises what the proxy refuses."""
        lane = self._lanes.open(self._run_id, agent_id, self._replay_run_id, self._providers)
        with self._lock:
            self._open.add(lane)
        return lane

    def settle(self, lane: OpenLane) -> None:
        """End an attempt's lane and write its rows.

        Raises ReplayMissError where the recording had no answer, StoreFailed where an exchange
        could not be kept.
        """
        with self._lock:
            self._open.discard(lane)
        account = lane.close()
        self.accounts.append(account)
        told = "; ".join(account.failures[:3])
        if account.misses:
            raise ReplayMissError(
                f"agent {account.lane}: {told}", lane=account.lane, misses=account.misses
            )
        if account.failures:
            raise StoreFailed(f"agent {account.lane}: {told}", lane=account.lane)

    def leave(self) -> None:
        """End the lanes of attempts that do not count."""
        with self._lock:
            lanes, self._open = self._open, set()
        for lane in lanes:
            lane.leave()

    def recording_events(self) -> list[Event]:
        """The row that binds what was recorded; in a replay, the recorded one."""
        return self._lanes.recording_events(self._replay_run_id or self._run_id)
