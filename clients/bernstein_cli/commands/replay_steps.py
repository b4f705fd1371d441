"""The forms of `bernstein replay` that are about agents' steps: words and options → one answer."""

from pathlib import Path
from typing import Final

import click

from bernstein_cli import exit_codes, step_answers, step_debug, step_receipts
from bernstein_cli.step_answers import AskedSteps
from bernstein_cli.step_options import (
    DEBUG,
    DIFF_JOURNAL,
    EXPORT,
    PUBLISH,
    VERIFY,
    Common,
    StepOptions,
)
from bernstein_cli.step_source import open_steps
from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput

# How many words may follow a verb, and how they are called.
_WORDS: Final = {
    EXPORT: (1, 2, "AGENT_ID [OUT]"),
    PUBLISH: (1, 2, "AGENT_ID [OUT]"),
    VERIFY: (1, 3, "RECEIPT"),
    DIFF_JOURNAL: (2, 2, "AGENT_A AGENT_B"),
    DEBUG: (1, 2, "AGENT_A [AGENT_B]"),
}


def answer(
    ctx: click.Context,
    verb: str | None,
    words: tuple[str, ...],
    options: StepOptions,
    common: Common,
) -> int:
    """Answer; without a verb some option has no place here."""
    with open_steps(common.sdd_dir, offline=common.offline) as reader:
        asked = AskedSteps(reader, common.sdd_dir, common.as_json, options, common.offline)
        misplaced = options.misplaced(verb)
        if misplaced is not None:
            detail = f"{misplaced[0]} only applies to {misplaced[1]}"
            return asked.refuse("flag_not_applicable", detail, exit_codes.USAGE)
        if not verb:
            return step_answers.view(asked, words[0], common.limit)
        rest = _checked(ctx, verb, words[1:])
        try:
            for agent_id in _agents(verb, rest):
                paths.check_agent_id(agent_id)
        except InvalidInput as error:
            return asked.refuse(error.reason, error.message, exit_codes.USAGE)
        return _by_verb(asked, verb, rest)


def _agents(verb: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the words behind a verb are agents' ids."""
    if verb == VERIFY:
        return ()
    return words if verb in {DIFF_JOURNAL, DEBUG} else words[:1]


def _checked(ctx: click.Context, verb: str, words: tuple[str, ...]) -> tuple[str, ...]:
    fewest, most, names = _WORDS[verb]
    if not fewest <= len(words) <= most:
        raise click.UsageError(f"`bernstein replay {verb}` takes {names}", ctx)
    return words


def _by_verb(asked: AskedSteps, verb: str, words: tuple[str, ...]) -> int:
    first, second = words[0], words[1] if len(words) > 1 else None
    if verb == VERIFY:
        return step_answers.verify_receipt(asked, words)
    if verb == DIFF_JOURNAL:
        return step_answers.diff_journal(asked, *words)
    if verb == EXPORT:
        return step_receipts.export(asked, first, second)
    if verb == PUBLISH:
        return step_receipts.publish(asked, first, second)
    if second is not None:
        return step_debug.debug_two(asked, first, second)
    return step_debug.debug_one(asked, first, Path.cwd())
