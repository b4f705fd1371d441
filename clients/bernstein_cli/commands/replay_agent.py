"""`bernstein replay RUN -- COMMAND`, and `--all DIR`: agents again, answered from their runs."""

from collections.abc import Sequence
from pathlib import Path

from bernstein_cli.agent_gate import replay_all
from bernstein_cli.agent_options import AgentOptions
from bernstein_cli.agent_replay import find_agent, replay_agent
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document
from bernstein_client.connection import Services

__all__ = ["replay_all", "replay_one"]


def replay_one(
    run_id: str, command: Sequence[str], options: AgentOptions, sdd_dir: Path, *, as_json: bool
) -> int:
    """Replay one run; the exit code is the proxy's account."""
    require_folder(sdd_dir, starts_here=True)
    with Services(sdd_dir) as services:
        agent = find_agent(services, run_id)
        verdict = replay_agent(services, agent, command, options, quiet=as_json)
    verdict.say()
    if as_json:
        document(verdict.document())
    return verdict.exit_code(require_complete=options.require_complete)
