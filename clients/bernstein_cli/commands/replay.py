"""`bernstein replay`: show, verify, re-derive, rebuild, list, compare and rerun recorded runs."""

from pathlib import Path
from typing import Any, Final

import click

from bernstein_cli import replay_answers
from bernstein_cli.agent_options import COMMAND, AgentOptions, CommandBehindDashes, agent_options
from bernstein_cli.completion import complete_replay
from bernstein_cli.handing_over import hand_over_line
from bernstein_cli.local_run import name_of
from bernstein_cli.peer import knows_peer
from bernstein_cli.replay_answers import DEFAULT_SDD_DIR, Asked
from bernstein_cli.run_reader import open_runs
from bernstein_cli.step_options import Common, StepOptions, step_options, step_verb
from bernstein_formats.errors import RunNotFound
from bernstein_formats.run_choice import LATEST

LIST: Final = "list"
REPAIR: Final = "repair"
EXPLAIN: Final = "explain"
SCAN: Final = "scan"
OF_SERVICES: Final = (REPAIR, EXPLAIN, SCAN)
DIFF: Final = "diff"


@click.command(cls=CommandBehindDashes)
@click.argument(
    "words", nargs=-1, metavar="RUN_ID... [-- COMMAND...]", shell_complete=complete_replay
)
@click.option("--sdd-dir", default=DEFAULT_SDD_DIR, show_default=True, help="The state folder.")
@click.option("--as-json", "--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--limit", type=click.IntRange(min=0), help="Show only the first N rows.")
@click.option("--verify", is_flag=True, help="Recompute the chain; name the first broken step.")
@click.option("--require-provenance", is_flag=True, help="Exit 3 unless the seal's key is pinned.")
@click.option("--re-derive", is_flag=True, help="Check the schedule against its own rules.")
@click.option("--from-step", type=int, help="The state after the first N rows.")
@click.option("--offline", is_flag=True, help="Read the files here; start and write nothing.")
@click.option(
    "--file",
    type=click.Path(exists=True, path_type=Path),
    help="Read this journal, or the run in this folder; implies --offline.",
)
@click.option("--recover", is_flag=True, help="Repair: take rows out of damaged lines, too.")
@agent_options
@step_options
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    sdd_dir: str,
    as_json: bool,
    limit: int | None,
    verify: bool,
    require_provenance: bool,
    re_derive: bool,
    from_step: int | None,
    offline: bool,
    file: Path | None,
    recover: bool,
    **others: Any,
) -> int:
    """Show what a run recorded: RUN_ID, or `latest`; or one agent's steps: AGENT_ID.

    \b
    bernstein replay list                   the recorded runs
    bernstein replay RUN                    its events
    bernstein replay RUN --verify           is the record whole and unedited?
    bernstein replay RUN --re-derive        did the schedule follow its rules?
    bernstein replay RUN --from-step N      the state after N events
    bernstein replay diff RUN_A RUN_B       where do two runs part?
    bernstein replay explain RUN            what the keys of its agents' requests leave out
    bernstein replay scan RUN               are there secrets in what its agents said and heard?
    bernstein replay repair RUN             put a damaged journal in order; the original is kept
    bernstein replay RUN -- COMMAND...      the agent again, answered from the run
    bernstein replay --all DIR              every recorded agent below a folder, one after the other
    bernstein replay AGENT [--walk]         an agent's own steps, one after the other
    bernstein replay export AGENT [OUT]     a receipt of them that verifies anywhere
    bernstein replay publish AGENT [OUT]    the same, redacted; --preview, then --opt-in
    bernstein replay verify RECEIPT         is a receipt whole and unedited?
    bernstein replay diff-journal A B       where do two agents' steps part?
    bernstein replay debug A [B]            one chain in full, or two side by side

    --verify wins over --re-derive, and that over --from-step. Exit codes: 0 clean, 1 not clean or
    no such run, 2 wrong usage, 3 clean, but --require-provenance and no pinned key. With a COMMAND
    it is the proxy's account, not the command's: 10 a miss, 11 recorded calls were not asked for.
    To run a plan again from its record, set BERNSTEIN_REPLAY_RUN_ID for `bernstein run`.
    """
    of_agent = AgentOptions.taken_from(others)
    if COMMAND in ctx.meta or of_agent.given():
        return _of_agents(ctx, words, of_agent, Path(sdd_dir), as_json=as_json)
    if require_provenance and not verify:
        raise click.UsageError("--require-provenance is for --verify", ctx)
    words = words or ((LATEST,) if file is not None else ())
    has_mode = verify or re_derive or from_step is not None or file is not None
    verb = step_verb(Path(sdd_dir), words, has_mode=has_mode, offline=offline)
    options = StepOptions(**others)
    if verb is not None or options.misplaced(None):
        from bernstein_cli.commands.replay_steps import answer  # noqa: PLC0415 - seldom needed

        common = Common(Path(sdd_dir), as_json, limit, offline)
        return answer(ctx, verb, words, options, common)
    if words and words[0] in OF_SERVICES:
        return _by_services(ctx, words, Path(sdd_dir), recover=recover, as_json=as_json)
    _check_words(ctx, words)
    with open_runs(Path(sdd_dir), offline=offline, file=file) as runs:
        asked = Asked(runs, Path(sdd_dir), as_json, file, require_provenance)
        if words[0] == LIST:
            return replay_answers.list_all(asked)
        if words[0] == DIFF:
            return replay_answers.diff(asked, words[1], words[2])
        run_id = words[0] if file is None or words[0] != LATEST else name_of(file)
        return _of_run(asked, run_id, limit, from_step, verify=verify, re_derive=re_derive)


def _by_services(
    ctx: click.Context, words: tuple[str, ...], sdd_dir: Path, *, recover: bool, as_json: bool
) -> int:
    """Verbs that need running services, and load what speaks to them only here."""
    if words[0] == REPAIR:
        from bernstein_cli.replay_repair import repair  # noqa: PLC0415 - see above

        return repair(words[1:], sdd_dir, recover=recover, as_json=as_json)
    if len(words) != 2:
        raise click.UsageError(f"{words[0]} takes one run", ctx)
    if words[0] == SCAN:
        from bernstein_cli.recording_scan import scan_run  # noqa: PLC0415 - see above

        return scan_run(words[1], sdd_dir, as_json=as_json)
    from bernstein_cli.replay_explain import explain  # noqa: PLC0415 - see above

    return explain(words[1], sdd_dir, as_json=as_json)


def _of_run(
    asked: Asked,
    run_id: str,
    limit: int | None,
    from_step: int | None,
    *,
    verify: bool,
    re_derive: bool,
) -> int:
    try:
        if verify:
            return replay_answers.verify(asked, run_id)
        if re_derive:
            return replay_answers.rederive(asked, run_id)
        if from_step is not None:
            return replay_answers.rebuild(asked, run_id, from_step)
        return replay_answers.show(asked, run_id, limit)
    except RunNotFound as error:
        return replay_answers.not_found(asked, run_id, error)


def _of_agents(
    ctx: click.Context,
    words: tuple[str, ...],
    options: AgentOptions,
    sdd_dir: Path,
    *,
    as_json: bool,
) -> int:
    from bernstein_cli.commands.replay_agent import replay_all, replay_one  # noqa: PLC0415 - slow

    command = ctx.meta.get(COMMAND, ())
    if options.all_of is not None:
        if words or command or options.work_tree is not None:
            raise click.UsageError("--all takes no run, no command and no --work-tree", ctx)
        return replay_all(options.all_of, options, as_json=as_json)
    if len(words) != 1 or not command:
        found = f"{options.given()}: " if options.given() else ""
        raise click.UsageError(f"{found}name one run, and behind `--` the agent's command", ctx)
    return replay_one(words[0], command, options, sdd_dir, as_json=as_json)


def _check_words(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Hand over what the peer alone does here; UsageError for what nobody understands."""
    if not words:
        raise click.UsageError("name a run, `latest`, `list` or `diff`", ctx)
    first = words[0]
    if first not in (LIST, DIFF) and knows_peer(["replay", first]):
        hand_over_line(ctx, f"the verb {first} of replay")
    wanted = 3 if first == DIFF else 1
    if len(words) != wanted:
        raise click.UsageError("diff compares two runs; everything else takes one", ctx)
