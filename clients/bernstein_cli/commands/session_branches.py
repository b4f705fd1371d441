"""`bernstein session branches`: what two writers made of one journal, and each part by itself."""

from pathlib import Path

import click

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.main import tell
from bernstein_cli.output import Printed, document, say
from bernstein_cli.session_fork import write_private
from bernstein_cli.step_source import Steps, open_steps
from bernstein_formats import paths
from bernstein_formats.errors import Conflict, InvalidInput, NotFound
from bernstein_formats.session_branches import Branch, branch_lines, find_branches


@click.command()
@click.argument("agent_id")
@click.option("--sdd-dir", default=".sdd", show_default=True, help="The state folder.")
@click.option("--copy", metavar="HEAD", help="Copy the branch whose last hash begins with this.")
@click.option("--to", "new_id", metavar="ID", help="The new journal's id, for --copy.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def branches(
    *, agent_id: str, sdd_dir: str, copy: str | None, new_id: str | None, as_json: bool
) -> int:
    """Show the branches of an agent's step journal, or copy one of them to a new journal.

    A journal that two programs have extended at the same step is refused for appending. Nothing
    of it is thrown away: each branch can be copied, byte for byte, and gone on with. Exit codes:
    0 one branch, or copied; 1 several branches, or steps are missing; 2 no such journal, wrong
    usage.
    """
    if (copy is None) != (new_id is None):
        raise click.UsageError("--copy HEAD and --to ID belong together")
    is_remote = in_fleet(Path(sdd_dir))
    if is_remote and copy is not None:
        raise click.UsageError("--copy writes a file of this project, and the steps are a fleet's")
    with open_steps(Path(sdd_dir), offline=not is_remote) as reader:
        try:
            steps = reader.open(agent_id).whole()
        except (NotFound, InvalidInput) as error:
            tell(error, as_json=as_json)
            return exit_codes.USAGE
        found = find_branches(steps.chunks())
        if copy is not None and new_id is not None:
            return _copy(Path(sdd_dir), steps, _chosen(found, copy), new_id, as_json=as_json)
    rows: list[Printed] = [
        {"head_hash": branch.head_hash, "steps": len(branch.lines), "lines": list(branch.lines)}
        for branch in found
    ]
    if as_json:
        document({"agent_id": agent_id, "branches": rows})
    else:
        for branch in found:
            apart = [line for line in branch.lines if line not in _shared(found)]
            say(f"{branch.head_hash}  {len(branch.lines)} step(s), by itself on lines {apart}")
    return exit_codes.OK if len(found) < 2 else exit_codes.FAILED


def _shared(found: list[Branch]) -> set[int]:
    """Lines that are on every branch."""
    return set.intersection(*(set(branch.lines) for branch in found)) if len(found) > 1 else set()


def _chosen(found: list[Branch], head: str) -> Branch:
    fitting = [branch for branch in found if branch.head_hash.startswith(head)]
    if len(fitting) != 1:
        raise NotFound(f"{len(fitting)} branches have a last hash that begins with {head!r}")
    return fitting[0]


def _copy(sdd_dir: Path, steps: Steps, branch: Branch, new_id: str, *, as_json: bool) -> int:
    folder = sdd_dir / paths.steps_folder(new_id)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise Conflict(f"there is a journal of {new_id} already; choose another id") from None
    write_private(sdd_dir / paths.steps_path(new_id), branch_lines(steps.chunks(), branch))
    if as_json:
        document({"agent_id": new_id, "head_hash": branch.head_hash, "steps": len(branch.lines)})
    else:
        say(f"{len(branch.lines)} step(s) copied to {new_id}, head {branch.head_hash}")
    return exit_codes.OK
