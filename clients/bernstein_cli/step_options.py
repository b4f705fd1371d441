"""The options of `bernstein replay` that belong to step journals, and which verb takes which."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from bernstein_cli.fleet_place import in_fleet
from bernstein_formats import paths
from bernstein_formats.acknowledged import marks_path
from bernstein_formats.errors import BernsteinError, InvalidInput, NotAllowed, NotFound
from bernstein_formats.redaction import REDACTABLE
from bernstein_formats.run_choice import LATEST

EXPORT: Final = "export"
PUBLISH: Final = "publish"
VERIFY: Final = "verify"
DIFF_JOURNAL: Final = "diff-journal"
DEBUG: Final = "debug"
VERBS: Final = (EXPORT, PUBLISH, VERIFY, DIFF_JOURNAL, DEBUG)
# What `replay AGENT_ID` is called here: it has no verb.
VIEW: Final = ""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What was given."""

    yes_i_want_to_publish: bool = False
    preview: bool = False
    allow_secrets: bool = False
    redact: tuple[str, ...] = ()
    keep_input_hash: bool = False
    sign: str | None = None
    public_key: str | None = None
    head: str | None = None
    strict: bool = False
    walk: bool = False
    fork_from: int | None = None
    jump_to_failure: bool = False
    full: bool = False

    def misplaced(self, verb: str | None) -> tuple[str, str] | None:
        """The first option that the verb does not take, and the verbs that do, in words."""
        for name, verbs in _VERBS_OF.items():
            if getattr(self, name) != getattr(_NOTHING, name) and verb not in verbs:
                said = " and ".join(f"'bernstein replay {each or 'AGENT'}'" for each in verbs)
                return f"--{name.replace('_', '-')}", said
        return None


@dataclass(frozen=True, slots=True)
class Common:
    """Options that every form of `replay` has."""

    sdd_dir: Path
    as_json: bool
    limit: int | None
    offline: bool


def step_verb(
    sdd_dir: Path, words: tuple[str, ...], *, has_mode: bool, offline: bool
) -> str | None:
    """The verb, where the words are about steps; None: they are about runs.

    A word that is no verb names an agent when it has a step journal, or had one, unless a mode is
    asked for that only runs have.
    """
    if words and words[0] in VERBS:
        return words[0]
    if len(words) != 1 or has_mode:
        return None
    try:
        folder = sdd_dir / paths.steps_folder(words[0])
        marks = sdd_dir / marks_path(paths.steps_path(words[0]))
    except InvalidInput:
        return None
    if not offline and words[0] != LATEST and in_fleet(sdd_dir):
        return VIEW if _is_agent_of_fleet(sdd_dir, words[0]) else None
    return VIEW if folder.is_dir() or marks.exists() else None


def _is_agent_of_fleet(sdd_dir: Path, word: str) -> bool:
    """Whether it has steps and is no run."""
    from bernstein_client.connection import Services  # noqa: PLC0415 - gRPC, only where needed

    with Services(sdd_dir) as services:
        try:
            services.journal.get_run(word)
        except (NotFound, NotAllowed):
            pass
        else:
            return False
        try:
            next(services.steps.read(word), b"")
        except (NotFound, NotAllowed):
            return False
        except BernsteinError:
            pass  # what is wrong with them is said when they are read
    return True


_NOTHING: Final = StepOptions()
_VERBS_OF: Final[dict[str, tuple[str, ...]]] = {
    "yes_i_want_to_publish": (PUBLISH,),
    "preview": (PUBLISH,),
    "allow_secrets": (PUBLISH,),
    "redact": (PUBLISH,),
    "keep_input_hash": (PUBLISH,),
    "sign": (EXPORT, PUBLISH, DEBUG),
    "public_key": (VERIFY,),
    "head": (VERIFY,),
    "strict": (VERIFY,),
    "walk": (VIEW,),
    "fork_from": (DEBUG,),
    "jump_to_failure": (DEBUG,),
    "full": (DEBUG,),
}
_OPTIONS: Final = (
    click.option("--walk", is_flag=True, help="AGENT: step forward and back on a terminal."),
    click.option(
        "--yes-i-want-to-publish",
        "--opt-in",
        "yes_i_want_to_publish",
        is_flag=True,
        help="publish: yes, write a redacted receipt that is meant to leave this project.",
    ),
    click.option("--preview", is_flag=True, help="publish: only show what would stay readable."),
    click.option(
        "--allow-secrets",
        is_flag=True,
        help="publish: do not search what stays readable for secrets.",
    ),
    click.option(
        "--redact",
        multiple=True,
        type=click.Choice(REDACTABLE),
        help="publish: take this member out; again for more.  [default: prompt, tool_result]",
    ),
    click.option(
        "--keep-input-hash",
        is_flag=True,
        help="publish: keep the digests of inputs, by which guesses can be tested.",
    ),
    click.option("--sign", metavar="KEY", help="export, publish, debug: sign with this key file."),
    click.option("--public-key", metavar="KEY", help="verify: the key that must have signed."),
    click.option("--head", metavar="HEX", help="verify: the head that the chain must have."),
    click.option(
        "--strict",
        is_flag=True,
        help="verify: exit 1 when blobs are missing or the layout is not a writer's.",
    ),
    click.option("--fork-from", type=int, help="debug: fork the session at this step."),
    click.option(
        "--jump-to-failure", is_flag=True, help="debug: show only the step that is wrong."
    ),
    click.option("--full", is_flag=True, help="debug: show all steps, however many."),
)


def step_options(function: Function) -> Function:
    """Give a command these options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
