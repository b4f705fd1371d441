"""`bernstein session fork`: a recorded session goes on elsewhere, from any of its steps."""

from pathlib import Path

import click

from bernstein_cli import exit_codes
from bernstein_cli.audit_trail import record
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.main import tell
from bernstein_cli.output import document, remark, say
from bernstein_cli.session_fork import fork_session
from bernstein_formats.audit_events import ReplayEvent, fork_details, replay_event
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_formats.paths import check_agent_id


@click.command()
@click.argument("session_id")
@click.option("--from-step", type=int, metavar="N", help="Take steps 0 to N along, N included.")
@click.option("--label", default="", help="A short label in the fork's id and branch.")
@click.option("--prompt", help="What to try in the fork, kept in its snapshot.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def fork(
    *, session_id: str, from_step: int | None, label: str, prompt: str | None, as_json: bool
) -> int:
    """Fork a session of this repository into .sdd/worktrees, on a branch of its own.

    The parent is not touched. With --from-step the fork's step journal begins with the parent's
    steps up to N, so that both chains share their hashes up to there. Exit codes: 0 forked,
    1 refused, no such session; 2 wrong usage.
    """
    try:
        check_agent_id(session_id)
    except InvalidInput as error:
        tell(error, as_json=as_json)
        return exit_codes.USAGE
    if from_step is not None and in_fleet(Path.cwd() / ".sdd"):
        raise click.UsageError(
            "--from-step takes the steps from this project's files, and they are a fleet's; fork"
            " without it"
        )
    try:
        made = fork_session(Path.cwd(), session_id, from_step=from_step, label=label, prompt=prompt)
    except BernsteinError as error:
        if as_json:
            document({"error": error.reason, "detail": error.message})
        remark(f"Fork failed: {error.message} [{error.reason}]")
        return exit_codes.FAILED
    details = fork_details(
        made.parent_step_hash or "", made.parent_step_hash or "", made.session_id
    )
    record(Path.cwd() / ".sdd", replay_event(ReplayEvent.FORK, session_id, details))
    if as_json:
        document(made.document())
        return exit_codes.OK
    say("Forked session.")
    say(f"  parent:    {session_id}")
    say(f"  fork:      {made.session_id}")
    say(f"  branch:    {made.branch}")
    say(f"  worktree:  {made.worktree}")
    say(f"  commit:    {made.commit[:12]}")
    say(f"  snapshot:  {made.snapshot_path}")
    if made.from_step is not None:
        say(f"  from_step: {made.from_step}")
        say(f"  step hash: {(made.parent_step_hash or '')[:16]}...")
    return exit_codes.OK
