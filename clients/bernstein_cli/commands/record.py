"""`bernstein record -- COMMAND`: an agent's model traffic is recorded, as a run of its own."""

import os
from pathlib import Path

import click

from bernstein_agent.recorded import store_environment
from bernstein_agent.surroundings import look_around
from bernstein_agent.work_tree import keep
from bernstein_cli.agent_process import run_agent
from bernstein_cli.agent_run import finish_run
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document, remark
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_cli.signing_key import without_key
from bernstein_cli.tool_servers import tool_servers_option
from bernstein_client.agent_rows import DEFAULT_LANE, create_run, started_event
from bernstein_client.agent_settings import for_command
from bernstein_client.connection import Services
from bernstein_client.provider_environment import all_providers
from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import BernsteinError
from bernstein_runtime.clock import SystemClock


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--lane", default=DEFAULT_LANE, show_default=True, help="The agent's name in the run."
)
@click.option(
    "--budget", default=0, type=click.IntRange(min=0), help="The most model calls; 0: no limit."
)
@tool_servers_option
@json_option
@sdd_dir_option
def record(
    *,
    command: tuple[str, ...],
    lane: str,
    budget: int,
    tool_servers: tuple[Provider, ...],
    as_json: bool,
    sdd_dir: Path,
) -> int:
    """Run an agent and record its model calls; `bernstein replay RUN -- COMMAND` replays it.

    The command finds the proxy in ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL;
    its keys are dummies, the real ones are taken from this environment. The exit code is the
    proxy's account, not the command's: 0 clean, 1 something was not recorded. With --json the
    command's output goes to stderr.
    """
    require_folder(sdd_dir, starts_here=True)
    providers = (*all_providers(), *tool_servers)
    with Services(sdd_dir) as services, ProxyClient(services.supervisor) as proxy:
        now = SystemClock().now_seconds()
        kept = keep(Path.cwd())
        around = look_around(command, Path.cwd(), os.environ, now, kept.tree)
        run_id = create_run(services, "", now)
        try:
            event = store_environment(services, run_id, around, kept)
            services.journal.append_many(run_id, [event, started_event(lane, command)])
            base = proxy.open_lane(LaneWanted(run_id, lane, "", budget, providers))
            exit_code = run_agent(
                *for_command(command, base, without_key(os.environ)), quiet=as_json
            )
            verdict = finish_run(services, [proxy.close_lane()], exit_code)
        except BernsteinError:
            services.journal.finish_run(run_id)  # nothing is left open
            raise
    verdict.say()
    if not kept.tree.is_kept:
        remark("the files here are too many to be kept; a replay takes them as they are then")
    if around.stored_command is None:
        remark(
            "an argument looks like a secret and is not kept: `replay --all` leaves this run out"
        )
    if as_json:
        document(verdict.document())
    return verdict.exit_code()
