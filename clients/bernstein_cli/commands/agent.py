"""`bernstein agent`: lanes for agents that somebody else starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from bernstein_cli.agent_run import finish_run
from bernstein_cli.commands.agent_mcp import mcp
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document, remark, say
from bernstein_cli.peer_settings import PeerSettings, take_back_all
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_cli.tool_servers import tool_servers_option
from bernstein_client.agent_rows import create_run, recorded_run, started_event
from bernstein_client.agent_settings import CLIENTS
from bernstein_client.connection import Services
from bernstein_client.provider_environment import all_providers
from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import BernsteinError
from bernstein_formats.run_choice import LATEST
from bernstein_runtime.clock import SystemClock


@click.group()
def agent() -> None:
    """Open lanes for agents that you start yourself, and end them.

    `bernstein record` does all of it around one command.
    """


agent.add_command(mcp)


@agent.command()
@click.argument("client", type=click.Choice(sorted(CLIENTS)))
@click.option(
    "--run", "joined_id", default="", metavar="RUN", help="A run with open lanes; else new."
)
@click.option("--replay", "replay_run_id", default="", metavar="RUN", help="Answer from this run.")
@click.option("--lane", default="agent", show_default=True, help="The agent's name in the run.")
@click.option(
    "--budget", default=0, type=click.IntRange(min=0), help="The most model calls; 0: no limit."
)
@click.option(
    "--peer", is_flag=True, help="Put the lane into the user's settings file of claude or codex."
)
@tool_servers_option
@json_option
@sdd_dir_option
def env(
    *,
    client: str,
    peer: bool,
    joined_id: str,
    replay_run_id: str,
    lane: str,
    budget: int,
    tool_servers: tuple[Provider, ...],
    as_json: bool,
    sdd_dir: Path,
) -> int:
    """Open a lane and print the settings that send CLIENT through it, ready to be sourced.

    The lane stays open until `bernstein agent end RUN`, or a day without a call. With --peer, for
    agents whose starter filters their variables, every session of this user goes through the lane
    until then.
    """
    own = PeerSettings(client, os.environ) if peer else None
    if own:
        own.check()
    require_folder(sdd_dir, starts_here=True)
    providers = () if replay_run_id else (*all_providers(), *tool_servers)
    with Services(sdd_dir) as services, ProxyClient(services.supervisor) as proxy:
        if replay_run_id:
            replay_run_id = recorded_run(services, replay_run_id).run_id
        with _run_for(services, joined_id, replay_run_id) as run_id:
            services.journal.append_many(run_id, [started_event(lane, client=client)])
            wanted = LaneWanted(run_id, lane, replay_run_id, budget, providers)
            base_url = proxy.open_lane(wanted)
            if own:
                own.redirect(run_id, base_url)
            proxy.let_go()
    settings = CLIENTS[client](base_url).with_lane(base_url)
    if as_json:
        document(
            {
                "run_id": run_id,
                "lane": lane,
                "base_url": base_url,
                "variables": dict(settings.variables),
                "arguments": list(settings.arguments),
                "notes": list(settings.notes),
                "settings_file": str(own.path) if own else None,
            }
        )
    elif not own:
        for line in settings.lines():
            say(line)
    if own:
        remark(f"{own.path} leads to the lane, for every {client} of this user, until agent end")
    remark(f"run {run_id}; when the agent is done: bernstein agent end {run_id}")
    return 0


@contextmanager
def _run_for(services: Services, joined_id: str, replay_run_id: str) -> Iterator[str]:
    """The run of a lane; one that was made for a lane that is none is not left open."""
    if joined_id:
        yield joined_id
        return
    made = create_run(services, replay_run_id, SystemClock().now_seconds())
    try:
        yield made
    except BernsteinError:
        services.journal.finish_run(made)
        raise


@agent.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--require-complete", is_flag=True, help="Exit 11 when recorded calls were not asked for."
)
@json_option
@sdd_dir_option
def end(*, run_id: str, require_complete: bool, as_json: bool, sdd_dir: Path) -> int:
    """End all lanes of RUN, seal it and give the account; undo what --peer wrote first.

    `latest` is the run whose lane was opened last, whatever other runs began since. The settings
    files are put back even if there is no such run any more. Exit codes: 0 clean, 1 something was
    not recorded, 10 miss, 11 incomplete.
    """
    _take_back(run_id)
    require_folder(sdd_dir, starts_here=True)
    with Services(sdd_dir) as services, ProxyClient(services.supervisor) as proxy:
        if run_id == LATEST:
            run_id = proxy.latest_run()
            _take_back(run_id)
        run_id = services.journal.get_run(run_id).run_id
        verdict = finish_run(services, proxy.close_run(run_id))
    verdict.say()
    if as_json:
        document(verdict.document())
    return verdict.exit_code(require_complete=require_complete)


def _take_back(run_id: str) -> None:
    for told in take_back_all(run_id, os.environ):
        remark(told)
