"""`bernstein replay`: show, verify, re-derive, rebuild, list and compare recorded runs."""

from pathlib import Path
from typing import Final

import click

from bernstein_cli import replay_answers
from bernstein_cli.completion import complete_replay
from bernstein_cli.handing_over import hand_over_line
from bernstein_cli.peer import knows_peer
from bernstein_cli.replay_answers import Asked
from bernstein_cli.run_reader import open_runs
from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput, RunNotFound
from bernstein_formats.run_choice import LATEST

LIST: Final = "list"
DIFF: Final = "diff"


@click.command()
@click.argument("words", nargs=-1, metavar="RUN_ID...", shell_complete=complete_replay)
@click.option("--sdd-dir", default=".sdd", show_default=True, help="The state folder.")
@click.option("--as-json", "--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--limit", type=click.IntRange(min=0), help="Show only the first N rows.")
@click.option("--verify", is_flag=True, help="Recompute the chain; name the first broken step.")
@click.option("--re-derive", is_flag=True, help="Check the schedule against its own rules.")
@click.option("--from-step", type=int, help="The state after the first N rows.")
@click.option("--offline", is_flag=True, help="Read the files here; start and write nothing.")
@click.option(
    "--file",
    type=click.Path(exists=True, path_type=Path),
    help="Read this journal, or the run in this folder; implies --offline.",
)
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    words: tuple[str, ...],
    sdd_dir: str,
    as_json: bool,
    limit: int | None,
    verify: bool,
    re_derive: bool,
    from_step: int | None,
    offline: bool,
    file: Path | None,
) -> int:
    """Show what a run recorded: RUN_ID, or `latest`.

    \b
    bernstein replay list                   the recorded runs
    bernstein replay RUN                    its events
    bernstein replay RUN --verify           is the record whole and unedited?
    bernstein replay RUN --re-derive        did the schedule follow its rules?
    bernstein replay RUN --from-step N      the state after N events
    bernstein replay diff RUN_A RUN_B       where do two runs part?

    --verify wins over --re-derive, and that over --from-step. Exit codes: 0 clean, 1 not clean or
    no such run, 2 wrong usage. To run a plan again from its record, set BERNSTEIN_REPLAY_RUN_ID
    for `bernstein run`.
    """
    words = words or ((LATEST,) if file is not None else ())
    _check_words(ctx, words, Path(sdd_dir))
    with open_runs(Path(sdd_dir), offline=offline, file=file) as runs:
        asked = Asked(runs, Path(sdd_dir), as_json)
        if words[0] == LIST:
            return replay_answers.list_all(asked)
        if words[0] == DIFF:
            return replay_answers.diff(asked, words[1], words[2])
        try:
            if verify:
                return replay_answers.verify(asked, words[0])
            return _other(asked, words[0], limit, from_step, re_derive=re_derive)
        except RunNotFound as error:
            return replay_answers.not_found(asked, words[0], error)


def _other(
    asked: Asked, run_id: str, limit: int | None, from_step: int | None, *, re_derive: bool
) -> int:
    if re_derive:
        return replay_answers.rederive(asked, run_id)
    if from_step is not None:
        return replay_answers.rebuild(asked, run_id, from_step)
    return replay_answers.show(asked, run_id, limit)


def _check_words(ctx: click.Context, words: tuple[str, ...], sdd_dir: Path) -> None:
    """Hand over what the peer alone does here; UsageError for what nobody understands."""
    if not words:
        raise click.UsageError("name a run, `latest`, `list` or `diff`", ctx)
    first = words[0]
    if first not in (LIST, DIFF) and knows_peer(["replay", first]):
        hand_over_line(ctx, f"the verb {first} of replay")
    if _is_agent(sdd_dir, first):
        hand_over_line(ctx, f"replay of the agent {first}")
    wanted = 3 if first == DIFF else 1
    if len(words) != wanted:
        raise click.UsageError("diff compares two runs; everything else takes one", ctx)


def _is_agent(sdd_dir: Path, word: str) -> bool:
    """Whether the word names one agent's own step journal, which is another format."""
    try:
        paths.check_run_id(word)
    except InvalidInput:
        return False
    return (sdd_dir / "runtime" / "journal" / word).is_dir()
