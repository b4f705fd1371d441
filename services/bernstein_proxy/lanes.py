"""The lanes that are open: an agent's way in, its budget, and the account at its end."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from yarl import URL

from bernstein_client.connection import Services
from bernstein_formats.errors import BernsteinError, Conflict, InvalidInput, NotFound, TooMany
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.http_key import Keyed
from bernstein_formats.http_replay import LaneReplay, ReleaseOrder
from bernstein_formats.http_rule_file import RULE_SET, Action
from bernstein_formats.http_secrets import Redactor
from bernstein_formats.mcp_order import Order
from bernstein_formats.paths import check_run_id
from bernstein_proxy.run_log import Make, RecordedRun, RunLog
from bernstein_proxy.tool_server import ToolServer
from bernstein_proxy.upstream import Upstream
from bernstein_runtime import limits
from bernstein_runtime.metrics import EXCHANGES, OPEN_LANES

LANES_MAX: Final = 1024
TEXTS_LISTED_MAX: Final = 20
UNUSED_LISTED_MAX: Final = 100
# A lane that nobody holds goes after a day without a request.
UNHELD_SECONDS: Final = 24 * 3600.0
# How long it may take to notice that an agent that ended has left its requests.
GRACE_SECONDS: Final = 0.5
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lane is for. Without `replay_run_id` it records; `budget` 0: no limit of calls."""

    run_id: str
    lane: str
    replay_run_id: str = ""
    budget: int = 0
    # Whether a replay gives its answers in the order in which they ended when recorded.
    in_order: bool = False
    # Whether its rows are written when it is closed, all at once, and not as they come.
    rows_at_end: bool = False
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)


class Side(Protocol):
    """Takes the lines of one connection to a tool server."""

    async def take(self, kind: bytes, line: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Way:
    """Where a client posts messages, and where the real server takes them, if there is one."""

    side: Side
    url: URL | None


@dataclass(slots=True)
class Lane:
    """One agent's lane. Only the event loop touches it."""

    wanted: Wanted
    log: RunLog
    # It ends with the connection that opened it.
    is_held: bool = True
    # The recording that it answers from; None: it records.
    replay: LaneReplay | None = None
    order: ReleaseOrder | None = None
    # 128 random bits: whoever does not know them has no lane.
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    arrived: int = 0
    recorded: int = 0
    cut: int = 0
    refused: int = 0
    # Answers that did not wait for their turn to the end.
    late: int = 0
    # Rows that are written at its end; None: they are written as they come.
    rows: list[Exchange] | None = None
    # Of those, to paths that no known client calls.
    unexpected_path: int = 0
    # What keeps the account from being clean, and what is only worth knowing.
    failures: list[str] = field(default_factory=list)
    # By masking rule the different texts that it blanked in requests which were answered.
    masked: dict[str, set[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    used_at: float = field(default_factory=time.monotonic)
    # Requests that are being answered, and exchanges that are being stored.
    answering: set[asyncio.Task[object]] = field(default_factory=set)
    storing: set[asyncio.Task[Exchange | None]] = field(default_factory=set)
    # Tool servers whose traffic it replays, by path.
    tool_servers: dict[str, ToolServer] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    ways_opened: int = 0
    # How many of what arrived were no model calls.
    tool_messages: int = 0
    turn: asyncio.Condition = field(default_factory=asyncio.Condition)

    def has_budget(self) -> bool:
        return not self.wanted.budget or self.arrived - self.tool_messages < self.wanted.budget

    def arrive_at_tool(self) -> int:
        """Like `arrive`, for what no budget counts."""
        self.tool_messages += 1
        return self.arrive()

    def open_way(self, way: Way) -> str:
        """Gives the end of its path."""
        self.ways_opened += 1
        name = f"way-{self.ways_opened}"
        self.ways[name] = way
        return name

    def close_way(self, name: str) -> None:
        self.ways.pop(name, None)

    def store(self, seq: int, make: Make) -> asyncio.Task[Exchange | None]:
        """Keep request `seq` whatever becomes of the caller; None: it is not kept, and the account
        says why."""
        storing = asyncio.get_running_loop().create_task(self._stored(seq, make))
        self.storing.add(storing)
        storing.add_done_callback(self.storing.discard)
        return storing

    async def _stored(self, seq: int, make: Make) -> Exchange | None:
        try:
            exchange = await self.log.record(make, self.rows)
        except BernsteinError as error:
            log.warning("not_recorded", reason=error.reason, error=error.message)
            self.fail(f"request {seq} is not recorded: {error.message} [{error.reason}]")
            return None
        self.recorded += 1
        EXCHANGES.add()
        self.cut += not exchange.answer.is_whole
        return exchange

    def tool_server(self, path: str) -> ToolServer:
        """The replayed traffic of the tool server at this path."""
        assert isinstance(self.log, RecordedRun)
        if path not in self.tool_servers:
            rows = Order(self.log.exchanges, self.wanted.lane, path)
            self.tool_servers[path] = ToolServer(rows)
        return self.tool_servers[path]

    def arrive(self) -> int:
        """The number of a request, in the order of arrival."""
        self.arrived += 1
        self.used_at = time.monotonic()
        return self.arrived

    def refuse(self, text: str, *, is_unexpected: bool = False) -> None:
        """Count a request that is neither recorded nor looked up."""
        self.refused += 1
        self.unexpected_path += is_unexpected
        self.note(text)

    def mask(self, found: Keyed) -> None:
        """Count what masks blanked in a request: there it need not be what was recorded."""
        for rule, texts in found.taken.items():
            if RULE_SET.action_of(rule) is Action.MASK:
                self.masked.setdefault(rule, set()).update(texts)

    def fail(self, text: str) -> None:
        if len(self.failures) < TEXTS_LISTED_MAX:
            self.failures.append(text)

    def note(self, text: str) -> None:
        if len(self.notes) < TEXTS_LISTED_MAX:
            self.notes.append(text)

    async def finish(self) -> None:
        """End what is still being answered, to nobody, and wait until all is stored."""
        if self.answering:
            await asyncio.wait(self.answering, timeout=GRACE_SECONDS)
        for task in self.answering:
            task.cancel()
        while running := {*self.answering, *self.storing}:
            await asyncio.wait(running)

    def account(self) -> dict[str, object]:
        """What became of it, as the control connection says it."""
        said: dict[str, object] = {
            "run_id": self.wanted.run_id,
            "lane": self.wanted.lane,
            "replay_run_id": self.wanted.replay_run_id,
            "recorded": self.recorded,
            "cut": self.cut,
            "refused": self.refused,
            "late": self.late,
            "unexpected_path": self.unexpected_path,
            "masked": {rule: len(texts) for rule, texts in self.masked.items()},
            "failures": self.failures,
            "notes": self.notes,
            "served": 0,
            "misses": 0,
            "unused_count": 0,
            "unused": [],
        }
        if self.replay is not None:
            account = self.replay.account()
            listed = account.unused[:UNUSED_LISTED_MAX]
            said |= {
                "served": account.served,
                "cut": account.cut,
                "misses": account.misses,
                "unused_count": len(account.unused),
                "unused": [
                    {"seq": each.seq, "key": each.key, "path": each.path} for each in listed
                ],
            }
        return said


class Lanes:
    """All open lanes by token. Only the event loop touches it, but for reading a recording."""

    def __init__(self, services: Services, redactor: Redactor) -> None:
        self._services = services
        self._redactor = redactor
        self._open: dict[str, Lane] = {}
        self._logs: dict[str, RunLog] = {}
        self._opening = asyncio.Lock()

    async def open(self, wanted: Wanted) -> Lane:
        """Raises InvalidInput, Conflict, TooMany, and what reading a recording raises."""
        _check(wanted)
        async with self._opening:
            self._make_room()
            for lane in self.of_run(wanted.run_id):
                if lane.wanted.replay_run_id != wanted.replay_run_id:
                    raise Conflict(f"run {wanted.run_id} has lanes that do something else")
                if lane.wanted.lane == wanted.lane:
                    raise Conflict(
                        f"lane {wanted.lane!r} of run {wanted.run_id} is open; give each agent a"
                        " lane of its own",
                        lane=wanted.lane,
                    )
            run_log = self._logs.get(wanted.run_id)
            if run_log is None:
                run_log = await asyncio.to_thread(self._log, wanted)
                self._logs[wanted.run_id] = run_log
            lane = Lane(wanted, run_log, rows=[] if wanted.rows_at_end else None)
            if isinstance(run_log, RecordedRun):
                lane.replay = run_log.lane(wanted.lane)
                lane.order = run_log.order(wanted.lane) if wanted.in_order else None
            self._open[lane.token] = lane
            OPEN_LANES.add()
            return lane

    def find(self, token: str) -> Lane | None:
        return self._open.get(token)

    def of_run(self, run_id: str) -> list[Lane]:
        return [lane for lane in self._open.values() if lane.wanted.run_id == run_id]

    async def close(self, lane: Lane, *, is_left: bool = False) -> dict[str, object]:
        """End a lane and give its account; of one that was left, rows not written yet go."""
        if self._open.pop(lane.token, None) is not None:
            OPEN_LANES.add(-1)
        await lane.finish()
        if lane.rows and not is_left:
            await lane.log.write(lane.rows)
        if not self.of_run(lane.wanted.run_id):
            self._logs.pop(lane.wanted.run_id, None)
            if isinstance(lane.log, RecordedRun):
                await lane.log.flush()
        return lane.account()

    def latest_run(self) -> str:
        """The run whose lane, held by nobody, was opened last. Raises NotFound."""
        unheld = [lane.wanted.run_id for lane in self._open.values() if not lane.is_held]
        if not unheld:
            raise NotFound(
                "no lane is open for an agent that somebody else starts; `bernstein agent env`"
                " opens one"
            )
        return unheld[-1]

    async def close_run(self, run_id: str) -> list[dict[str, object]]:
        """End all lanes of a run. Raises NotFound."""
        lanes = self.of_run(run_id)
        if not lanes:
            raise NotFound(
                f"run {run_id} has no open lane: `bernstein agent env` opens one, and it ends a"
                f" day after its last call; `bernstein services seal --abandoned {run_id}` ends"
                " the run",
                run_id=run_id,
            )
        return [await self.close(lane) for lane in lanes]

    @property
    def is_empty(self) -> bool:
        return not self._open

    async def end_idle(self) -> None:
        """End lanes that nobody holds and nobody used for a day."""
        since = time.monotonic() - UNHELD_SECONDS
        for lane in list(self._open.values()):
            if not lane.is_held and not lane.answering and lane.used_at < since:
                log.info("lane_idle", run_id=lane.wanted.run_id)
                await self.close(lane)

    def _log(self, wanted: Wanted) -> RunLog:
        if wanted.replay_run_id:
            recorded_id = wanted.replay_run_id
            return RecordedRun(self._services, wanted.run_id, recorded_id, self._redactor)
        self._services.journal.get_run(wanted.run_id)
        return RunLog(self._services, wanted.run_id, self._redactor)

    def _make_room(self) -> None:
        if len(self._open) >= LANES_MAX:
            raise TooMany(f"{LANES_MAX} lanes are open; end some with `bernstein agent end RUN`")


def _check(wanted: Wanted) -> None:
    check_run_id(wanted.run_id)
    if not 1 <= len(wanted.lane) <= limits.LANE_CHARACTERS_MAX or not wanted.lane.isprintable():
        raise InvalidInput(
            f"a lane's name has 1 to {limits.LANE_CHARACTERS_MAX} characters that can be printed",
            lane=wanted.lane[: limits.LANE_CHARACTERS_MAX],
        )
    if wanted.replay_run_id:
        check_run_id(wanted.replay_run_id)
        if wanted.replay_run_id == wanted.run_id:
            raise InvalidInput(f"run {wanted.run_id} cannot replay itself")
