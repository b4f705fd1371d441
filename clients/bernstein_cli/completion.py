"""What a shell completes where a run is asked for: names of folders, read without a service."""

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from bernstein_cli.local_run import run_ids
from bernstein_cli.step_options import VERBS
from bernstein_formats.paths import is_run_id
from bernstein_formats.run_choice import LATEST

REPLAY_VERBS: Final = ("list", "diff", "repair", "explain", "scan", *VERBS)


def complete_runs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Run ids, newest-looking first, and `latest`."""
    names = [LATEST, *filter(is_run_id, reversed(run_ids(sdd_dir_of(ctx))))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_replay(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The same, and the verbs of `replay`."""
    verbs = [CompletionItem(verb) for verb in REPLAY_VERBS if verb.startswith(incomplete)]
    return [*verbs, *complete_runs(ctx, param, incomplete)]


def sdd_dir_of(ctx: click.Context) -> Path:
    """The state folder that the options typed so far name."""
    if "workdir" in ctx.params:
        return Path(ctx.params["workdir"] or ".") / ".sdd"
    return Path(ctx.params.get("sdd_dir") or ".sdd")
