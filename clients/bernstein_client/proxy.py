"""The recording proxy, as programs see it: a lane for an agent, held as long as the agent lives."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

from bernstein_client.recorder import Provider
from bernstein_formats.errors import Unavailable
from bernstein_runtime import limits
from bernstein_runtime.disk import in_words
from bernstein_runtime.refusal import error_from_refusal
from bernstein_runtime.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class LaneWanted:
    """What a lane is for: without `replay_run_id` it records. `budget` 0: no limit of calls.

    `in_order` gives a replay's answers in the order in which they ended when recorded;
    `rows_at_end` writes the lane's rows when it is closed, and none if it is not.
    """

    run_id: str
    lane: str
    replay_run_id: str = ""
    budget: int = 0
    providers: Sequence[Provider] = ()
    in_order: bool = False
    rows_at_end: bool = False


@dataclass(frozen=True, slots=True)
class UnusedExchange:
    """A recorded exchange that nobody asked for."""

    seq: int
    key: str
    path: str


@dataclass(frozen=True, slots=True)
class LaneAccount:
    """What became of a lane: the verdict on its agent's traffic."""

    run_id: str
    lane: str
    replay_run_id: str
    recorded: int
    cut: int
    refused: int
    # Answers that were given out of their turn, where the order is kept.
    late: int
    # Of those, to paths that no known client calls.
    unexpected_path: int
    # By masking rule how many different texts it blanked in requests that were answered.
    masked: Mapping[str, int]
    # What keeps it from being clean, and what is only worth knowing.
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    served: int
    misses: int
    unused_count: int
    unused: tuple[UnusedExchange, ...]


class ProxyClient:
    """Blocking; one lane a connection."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Have the proxy running. Raises Unavailable."""
        if find_spec("aiohttp") is None:
            raise Unavailable("the proxy is not installed: pip install 'bernstein-services[proxy]'")
        supervisor.ensure("proxy")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(limits.LONG_CALL_TIMEOUT_SECONDS)
        self._socket.connect(str(supervisor.places.socket("proxy")))
        self._answers = self._socket.makefile("rb")
        self._read()  # its greeting

    def open_lane(self, wanted: LaneWanted) -> str:
        """Open a lane; gives its base URL. It ends with this client, unless that lets go of it.

        Raises InvalidInput, Conflict, ReplayRecordingMissingError, RecordingChanged and others.
        """
        answer = self._ask(
            do="open",
            run_id=wanted.run_id,
            lane=wanted.lane,
            replay_run_id=wanted.replay_run_id,
            budget=wanted.budget,
            in_order=wanted.in_order,
            rows_at_end=wanted.rows_at_end,
            providers=[
                {"name": each.name, "base_url": each.base_url, "api_key": each.api_key}
                for each in wanted.providers
            ],
        )
        return str(answer["base_url"])

    def let_go(self) -> None:
        """Leave the lane open until its run is closed, or a day after its last call."""
        self._ask(do="let_go")

    def latest_run(self) -> str:
        """The run whose lane was let go of last. Raises NotFound."""
        return str(self._ask(do="latest_run")["run_id"])

    def close_lane(self) -> LaneAccount:
        """End the lane that this client holds; everything that went by is stored."""
        return _account(self._ask(do="close")["accounts"][0])

    def leave_lane(self) -> None:
        """End the lane that this client holds; rows that wait for its end are not written."""
        self._ask(do="leave")

    def close_run(self, run_id: str) -> tuple[LaneAccount, ...]:
        """End all lanes of a run. Raises NotFound."""
        answer = self._ask(do="close_run", run_id=run_id)
        return tuple(_account(each) for each in answer["accounts"])

    def close(self) -> None:
        """Let go; a lane that is still held ends."""
        self._answers.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **request: object) -> dict[str, Any]:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")  # noqa: TID251 - not evidence
        except OSError as error:
            raise Unavailable(f"the proxy went away: {in_words(error)}") from error
        return self._read()

    def _read(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except OSError as error:
            raise Unavailable(f"the proxy went away: {in_words(error)}") from error
        if not line:
            raise Unavailable("the proxy went away; see `bernstein services logs proxy`")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise error_from_refusal(answer)
        return answer


def _account(said: dict[str, Any]) -> LaneAccount:
    unused = tuple(
        UnusedExchange(each["seq"], each["key"], each["path"]) for each in said["unused"]
    )
    texts = {name: tuple(said[name]) for name in ("failures", "notes")}
    return LaneAccount(**(said | texts | {"unused": unused}))
