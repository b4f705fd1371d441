"""`bernstein record -- COMMAND`: an agent's model traffic, recorded or replayed; one run each."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from bernstein_cli.agent_run import finish_run
from bernstein_cli.output import document
from bernstein_cli.services_options import json_option, require_folder, sdd_dir_option
from bernstein_cli.tool_servers import tool_servers_option
from bernstein_client.agent_rows import create_run, started_event
from bernstein_client.agent_settings import for_command
from bernstein_client.connection import Services
from bernstein_client.provider_environment import all_providers
from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.clock import SystemClock


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--replay", "replay_run_id", default="", metavar="RUN", help="Answer from this run.")
@click.option("--lane", default="agent", show_default=True, help="The agent's name in the run.")
@click.option(
    "--budget", default=0, type=click.IntRange(min=0), help="The most model calls; 0: no limit."
)
@click.option(
    "--require-complete", is_flag=True, help="Exit 11 when recorded calls were not asked for."
)
@tool_servers_option
@json_option
@sdd_dir_option
def record(
    *,
    command: tuple[str, ...],
    replay_run_id: str,
    lane: str,
    budget: int,
    require_complete: bool,
    tool_servers: tuple[Provider, ...],
    as_json: bool,
    sdd_dir: Path,
) -> int:
    """Run an agent with its model calls recorded, or with --replay answered from a run.

    The command finds the proxy in ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL;
    its keys are dummies, the real ones are taken from this environment. The exit code is the
    proxy's account, not the command's: 0 clean, 1 something was not recorded, 10 miss, 11
    incomplete. With --json the command's output goes to stderr.
    """
    require_folder(sdd_dir)
    providers = () if replay_run_id else (*all_providers(), *tool_servers)
    with Services(sdd_dir) as services, ProxyClient(services.supervisor) as proxy:
        if replay_run_id:
            replay_run_id = services.journal.get_run(replay_run_id).run_id
        run_id = create_run(services, replay_run_id, SystemClock().now_seconds())
        services.journal.append_many(run_id, [started_event(lane, command)])
        try:
            base = proxy.open_lane(LaneWanted(run_id, lane, replay_run_id, budget, providers))
            exit_code = _run(*for_command(command, base), quiet=as_json)
            verdict = finish_run(services, [proxy.close_lane()], exit_code)
        except BernsteinError:
            services.journal.finish_run(run_id)  # nothing is left open
            raise
    verdict.say()
    if as_json:
        document(verdict.document())
    return verdict.exit_code(require_complete=require_complete)


def _run(command: tuple[str, ...], environ: Mapping[str, str], *, quiet: bool) -> int:
    """Run the command to its end; gives its exit code. Raises InvalidInput if it cannot start."""
    try:
        process = subprocess.Popen(  # noqa: S603 - it is what the user typed
            command, env=environ, stdout=sys.stderr if quiet else None
        )
    except OSError as error:
        raise InvalidInput(f"cannot run {command[0]!r}: {error.strerror or error}") from error
    with _passing_on_signals(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _passing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The command decides what a signal means; what it did until then is kept.

    A terminal sends Ctrl-C to both, other signals are sent on.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
