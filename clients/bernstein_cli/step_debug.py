"""`replay debug`: one session's chain walked step by step, or two of them side by side."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from bernstein_cli import exit_codes
from bernstein_cli.output import RED, Printed, document, remark, say
from bernstein_cli.session_fork import Fork, fork_session
from bernstein_cli.step_answers import BOTH_MISSING, MISSING, AskedSteps, difference_lines
from bernstein_cli.step_receipts import Made, export_to
from bernstein_cli.step_source import Steps
from bernstein_cli.step_view import projection
from bernstein_cli.whole_file import replace_file
from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, NotFound
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_diff import path_diff
from bernstein_formats.session_journal_reader import Fault, entries, numbered_rows
from bernstein_formats.session_journal_verify import StepsVerification, verify_steps

# More steps than this are shown with --full only.
_SHOWN_MAX: Final = 200


def debug_two(asked: AskedSteps, left: str, right: str) -> int:
    """`replay debug LEFT RIGHT`; the comparison is stored."""
    try:
        a, b = asked.open(left), asked.open(right)
    except NotFound:
        return asked.refuse(MISSING, BOTH_MISSING, exit_codes.USAGE)
    found = path_diff(entries(a.chunks()), entries(b.chunks()))
    path = asked.sdd_dir / paths.path_diff_path(left, right)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, found.file_bytes())
    if asked.as_json:
        steps = found.steps
        if asked.options.jump_to_failure:
            steps = tuple(step for step in steps if step["diverged"])
        elif not asked.options.full:
            steps = steps[-_SHOWN_MAX:]
        document(
            {
                "mode": "two-run",
                "left": left,
                "right": right,
                "artifact_path": str(path),
                "diff_hash": found.diff_hash,
                **found.as_json(),
                "steps": list(steps),
            }
        )
    else:
        for line in difference_lines(found.divergence):
            say(line)
        say(f"diff artifact: {path} ({found.diff_hash})")
    return exit_codes.OK if found.divergence is None else exit_codes.FAILED


def debug_one(asked: AskedSteps, agent_id: str, repository: Path) -> int:
    """`replay debug AGENT_ID`: verify, show, and leave a receipt; fork where that was asked for."""
    try:
        steps = asked.open(agent_id)
    except NotFound as error:
        return asked.missing(error)
    found = verify_steps(steps.chunks())
    if not found.ok:
        return _failed(asked, steps, found)
    path = str(asked.sdd_dir / paths.session_receipt_path(agent_id, "debug"))
    try:
        made = export_to(asked, steps, path)
    except BernsteinError as error:
        return asked.refuse("export_failed", error.message, exit_codes.FAILED)
    step = asked.options.fork_from
    fork = None if step is None else fork_session(repository, agent_id, from_step=step)
    if asked.as_json:
        document(_document(asked, steps, found, made, fork))
    else:
        _say_one(agent_id, found, made, fork)
    return exit_codes.OK


def _failed(asked: AskedSteps, steps: Steps, found: StepsVerification) -> int:
    """What is wrong, and the steps up to there; or the first wrong one alone."""
    line = next((fault.line for fault in found.faults if fault.line is not None), None)
    rows = [_shown_row(row) for _, row in _rows_to(steps, line)]
    if asked.options.jump_to_failure:
        rows = rows[-1:]
    elif not asked.options.full:
        rows = rows[-_SHOWN_MAX:]
    if asked.as_json:
        document(
            {
                "mode": "single-run",
                "run": steps.agent_id,
                "verified": False,
                "head_hash": found.head_hash,
                "steps": found.steps,
                "errors": [fault.text for fault in found.faults],
                "failing_line": line,
                "projection": rows,
            }
        )
    else:
        say(f"Chain verification failed for {steps.agent_id}:", RED)
        for fault in found.faults:
            say(f"  - {fault.text}")
    return exit_codes.FAILED


def _rows_to(steps: Steps, line: int | None) -> list[tuple[int, Row]]:
    return [
        (number, row)
        for number, row in numbered_rows(steps.chunks())
        if not isinstance(row, Fault) and (line is None or number <= line)
    ]


def _shown_row(row: Row) -> dict[str, Printed]:
    return projection({"seq": None, "step_hash": None, "prev_hash": None, **row})


def _document(
    asked: AskedSteps, steps: Steps, found: StepsVerification, made: Made, fork: Fork | None
) -> Mapping[str, Printed]:
    limit = None if asked.options.full else _SHOWN_MAX
    return {
        "mode": "single-run",
        "run": steps.agent_id,
        "verified": True,
        "head_hash": found.head_hash,
        "steps": found.steps,
        "receipt": {
            "path": made.path,
            "head_hash": made.manifest.head_hash,
            "steps": made.manifest.steps,
            "signed": made.signed,
        },
        "projection": [projection(row) for row in islice(entries(steps.chunks()), limit)],
        **({} if fork is None else {"fork": fork.in_short()}),
    }


def _say_one(agent_id: str, found: StepsVerification, made: Made, fork: Fork | None) -> None:
    say(f"Replay debug for {agent_id}")
    say(f"head_hash: {found.head_hash}")
    say(f"steps: {found.steps}")
    say(f"Debug receipt -> {made.path} (signed={made.signed})")
    if fork is not None:
        say(f"Forked at step {fork.from_step} -> {fork.worktree}")
    key = " --public-key KEY" if made.signed else ""
    remark(f"verify it anywhere with: bernstein replay verify {made.path}{key}")
