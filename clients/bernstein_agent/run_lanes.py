"""The lanes of a run's programs: one an attempt, and what the run keeps of their surroundings."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from bernstein_agent.recorded import (
    put_up_recorded,
    read_environment,
    shown_requests,
    store_environment,
)
from bernstein_agent.surroundings import check, faketime, look_around
from bernstein_agent.work_tree import Kept
from bernstein_client.agent_rows import Event, recording_events
from bernstein_client.connection import Services
from bernstein_client.provider_environment import PROVIDERS
from bernstein_client.proxy import LaneAccount, LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.agent_environment import Difference, Environment
from bernstein_runtime.places import Places


class OpenLane:
    """A lane with its connection, which holds it."""

    def __init__(self, proxy: ProxyClient, wanted: LaneWanted) -> None:
        """Open it; raises what the proxy refuses."""
        self._proxy = proxy
        self.base_url = proxy.open_lane(wanted)

    def close(self) -> LaneAccount:
        """End it: its rows are written, and nothing more comes through."""
        try:
            return self._proxy.close_lane()
        finally:
            self._proxy.close()

    def leave(self) -> None:
        """End it without its rows: its attempt does not count."""
        try:
            self._proxy.leave_lane()
        finally:
            self._proxy.close()


class RunLanes:
    """The lanes that the services of a project open. Safe for any number of threads."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @staticmethod
    def are_installed() -> bool:
        """Whether the proxy's extra is there."""
        return find_spec("aiohttp") is not None

    @property
    def places(self) -> Places:
        return self._services.places

    def open(
        self, run_id: str, lane: str, replay_run_id: str, providers: Sequence[Provider]
    ) -> OpenLane:
        """A lane whose rows are written when it is closed. Raises what the proxy refuses."""
        named = {each.name: each for each in providers}
        all_of_them = [named.get(name) or Provider(name, "", "") for name in PROVIDERS]
        wanted = LaneWanted(
            run_id,
            lane,
            replay_run_id,
            providers=() if replay_run_id else all_of_them,
            rows_at_end=True,
        )
        return OpenLane(ProxyClient(self._services.supervisor), wanted)

    def store(self, run_id: str, environment: Environment, kept: Kept) -> Event:
        """Store what programs see, durably; gives the row that binds it."""
        return store_environment(self._services, run_id, environment, kept)

    def recorded(self, run_id: str, event: Event) -> Environment:
        """The manifest that a run's row binds. Raises RowMalformed and others."""
        return read_environment(self._services, run_id, event)

    def check(
        self,
        run_id: str,
        recorded: Environment,
        folder: Path,
        environ: Mapping[str, str],
        now: float,
    ) -> list[Difference]:
        """What differs today and does not matter. Raises EnvironmentChanged for what does."""
        today = look_around((), folder, environ, now, recorded.work_tree)
        requests = shown_requests(self._services, run_id)
        return check(recorded, today, requests, is_day_set=bool(faketime()))

    def put_up(self, run_id: str, recorded: Environment, today: Path, target: Path) -> None:
        """Have the recorded files in a new folder. Raises EnvironmentChanged, StoreFailed."""
        put_up_recorded(self._services, run_id, recorded, today, target)

    def recording_events(self, run_id: str) -> list[Event]:
        """The row that binds a run's recorded exchanges; none where there are none."""
        return recording_events(self._services, run_id)
