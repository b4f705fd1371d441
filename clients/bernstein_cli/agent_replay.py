"""An agent is replayed: its surroundings first, then the agent in them, then the account."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bernstein_agent.locked_in import Surroundings
from bernstein_agent.recorded import (
    environment_event,
    put_up_recorded,
    read_environment,
    shown_requests,
)
from bernstein_agent.sandbox import Sandbox
from bernstein_agent.surroundings import check, faketime, look_around
from bernstein_agent.work_tree import keep, put_up
from bernstein_cli.agent_options import AgentOptions
from bernstein_cli.agent_process import run_agent
from bernstein_cli.agent_run import AgentVerdict, finish_run
from bernstein_cli.output import remark
from bernstein_cli.signing_key import without_key
from bernstein_client.agent_rows import (
    Event,
    create_run,
    recorded_lane,
    recorded_run,
    started_event,
)
from bernstein_client.agent_settings import for_command
from bernstein_client.connection import Services
from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_formats.agent_environment import Environment
from bernstein_formats.errors import BernsteinError, Conflict
from bernstein_runtime.clock import SystemClock


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """What a run says of its agent; without a manifest its surroundings are taken as they are."""

    run_id: str
    lane: str
    environment: Environment | None
    event: Event | None


def find_agent(services: Services, run_id: str) -> RecordedAgent:
    """Raises RunNotFound, InvalidInput, ReplayRecordingMissingError, Conflict, RowMalformed."""
    run = recorded_run(services, run_id)
    run_id = run.run_id
    if not run.seal_json:
        remark(
            f"run {run_id} is not sealed: its recording was broken off, or goes on; what it has is"
            " replayed"
        )
    lane = recorded_lane(services, run_id)
    event = environment_event(services, run_id)
    environment = read_environment(services, run_id, event) if event else None
    return RecordedAgent(run_id, lane, environment, event)


def replay_agent(
    services: Services,
    agent: RecordedAgent,
    command: Sequence[str],
    options: AgentOptions,
    *,
    quiet: bool,
    alone: bool = False,
) -> AgentVerdict:
    """Replay a run's agent. Raises EnvironmentChanged, SandboxMissing and others before it runs."""
    _check_surroundings(services, agent, command)
    with (
        _surroundings(services, agent, options) as around,
        ProxyClient(services.supervisor) as proxy,
    ):
        run_id = create_run(services, agent.run_id, SystemClock().now_seconds())
        events = [started_event(agent.lane, command)]
        services.journal.append_many(run_id, [agent.event, *events] if agent.event else events)
        try:
            order = options.keep_order
            base = proxy.open_lane(LaneWanted(run_id, agent.lane, agent.run_id, in_order=order))
            exit_code = _run(command, base, around, quiet=quiet, alone=alone)
            return finish_run(services, [proxy.close_lane()], exit_code)
        except BernsteinError:
            services.journal.finish_run(run_id)  # nothing is left open
            raise


def _check_surroundings(services: Services, agent: RecordedAgent, command: Sequence[str]) -> None:
    recorded = agent.environment
    if recorded is None:
        return
    now = SystemClock().now_seconds()
    today = look_around(command, Path.cwd(), os.environ, now, recorded.work_tree)
    requests = shown_requests(services, agent.run_id, agent.lane)
    for each in check(recorded, today, requests, is_day_set=bool(faketime())):
        remark(f"not as it was recorded, and in no request: {each.text()}")


@contextmanager
def _surroundings(
    services: Services, agent: RecordedAgent, options: AgentOptions
) -> Iterator[Surroundings | None]:
    """The recorded files in a fresh folder; None where the agent is not locked in."""
    if options.unsafe_tools:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bernstein-replay-") as folder:
        tree = options.work_tree or Path(folder) / "tree"
        if tree.exists():
            raise Conflict(f"{tree} is there already and stays; name another folder", path=tree)
        recorded = agent.environment
        if recorded is None:
            kept = keep(Path.cwd())
            now = SystemClock().now_seconds()
            recorded = look_around((), Path.cwd(), os.environ, now, kept.tree)
            put_up(kept.tree, kept.contents, Path.cwd(), tree)
        else:
            put_up_recorded(services, agent.run_id, recorded, Path.cwd(), tree)
        yield Surroundings(recorded, tree.absolute(), services.places)


def _run(
    command: Sequence[str], base: str, around: Surroundings | None, *, quiet: bool, alone: bool
) -> int:
    given = without_key(os.environ)
    if around is None:
        return run_agent(*for_command(command, base, given), quiet=quiet, alone=alone)
    sandbox = Sandbox(around.place(base, os.environ))
    command, environ = for_command(command, base, around.environ(given))
    return run_agent(command, environ, sandbox, quiet=quiet, alone=alone)
