"""The command `bernstein`: arguments → one command; errors → one line and an exit code.

Rules of output, for every command:

* Data goes to stdout, alone: a verdict, a table, a document. Errors, progress, remarks and advice
  go to stderr.
* Under `--json` (or `--as-json`) stdout is one JSON document, also when the command fails:
  {"error": REASON, "detail": text, ...the facts that the text names}.
* An error is one line that ends in its reason: `bernstein: what, where, what to do [REASON]`.
  Exit codes: exit_codes.py. A user's mistake never gives a traceback.
* A stream that is closed, or broken, or full changes nothing but what is read: only a stdout that
  cannot be written ends a command (141 when its reader went away, else one line and 1).
* Colours and progress bars are for terminals, colours never under NO_COLOR. No meaning rests on a
  colour.
* What came from a file or from a service is shown, never acted on by the terminal.
* A word or an option that we lack and the peer has is the peer's, as it was typed.
"""

import os
import sys
from collections.abc import Sequence

import click

from bernstein_cli import exit_codes
from bernstein_cli.lazy import LazyGroup
from bernstein_cli.output import PROGRAM, document, remark, with_outputs
from bernstein_formats.errors import BernsteinError, StoreFailed
from bernstein_runtime import VERSION
from bernstein_runtime.trace import of_command

COMPLETE_VARIABLE = "_BERNSTEIN_COMPLETE"
JSON_OPTIONS = ("--json", "--as-json")

COMMANDS = {
    "tour": ("bernstein_cli.commands.tour:tour", "See the whole of it in a minute."),
    "run": ("bernstein_cli.commands.run:run", "Run a plan and record it, or replay a run."),
    "record": (
        "bernstein_cli.commands.record:record",
        "Record the model traffic of any agent command.",
    ),
    "agent": (
        "bernstein_cli.commands.agent:agent",
        "Print the settings that send an agent through the proxy.",
    ),
    "replay": (
        "bernstein_cli.commands.replay:replay",
        "Show, verify, re-derive, compare or rerun recorded runs.",
    ),
    "session": (
        "bernstein_cli.commands.session:session",
        "Fork recorded sessions, step by step.",
    ),
    "verify": (
        "bernstein_cli.commands.verify:verify",
        "Sign a run's receipt, or verify one offline.",
    ),
    "import": ("bernstein_cli.commands.import_:import_", "Take in runs that the peer recorded."),
    "cassette": (
        "bernstein_cli.commands.cassette:cassette",
        "Take over the cassettes of a test suite.",
    ),
    "follow": ("bernstein_cli.commands.follow:follow", "Show a run's rows as they are written."),
    "view": ("bernstein_cli.commands.view:view", "Show a run's live page in a browser."),
    "thread": ("bernstein_cli.commands.thread:thread", "Check what viewers see of a run."),
    "determinism": (
        "bernstein_cli.commands.determinism:determinism",
        "Check that the same turn stays the same turn.",
    ),
    "keys": ("bernstein_cli.commands.keys:keys", "Make keys that sign receipts."),
    "services": (
        "bernstein_cli.commands.services:services",
        "See, stop and check the background services.",
    ),
    "admin": (
        "bernstein_cli.commands.admin:admin",
        "Look after the store: tables, whole runs in and out.",
    ),
    "completions": (
        "bernstein_cli.commands.completions:completions",
        "Print the completion script of a shell.",
    ),
}
EPILOG = (
    "Every other command of the PyPI package bernstein is handed over to it, if it is installed."
    " Exit codes: 0 done, 1 failed or not clean, 2 wrong usage, 10 replay miss, 11 replay"
    " incomplete, 12 recording missing, 64 neither ours nor an installed peer's."
)


@click.group(PROGRAM, cls=LazyGroup, lazy=COMMANDS, epilog=EPILOG, invoke_without_command=True)
@click.version_option(VERSION, message=f"%(prog)s, version {VERSION} (bernstein-services)")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Record, replay, verify, re-derive and sign the runs of AI agents."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> int:
    """Run the command line of this process; gives the exit code."""
    if COMPLETE_VARIABLE in os.environ:
        return with_outputs(PROGRAM, lambda: _complete(os.environ[COMPLETE_VARIABLE]))
    return with_outputs(PROGRAM, lambda: run_command(sys.argv[1:]))


def run_command(argv: Sequence[str]) -> int:
    """Run one command line, its errors told as they are to be told."""
    of_command(" ".join([PROGRAM, *(word for word in argv[:1] if word in COMMANDS)]))
    try:
        with cli.make_context(PROGRAM, list(argv), obj=tuple(argv)) as ctx:
            return cli.invoke(ctx) or exit_codes.OK
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort:
        return exit_codes.INTERRUPTED
    except click.UsageError as error:
        _hand_over(error)
        return _tell_usage(error, as_json=_wants_json(argv))
    except BernsteinError as error:
        return tell(error, as_json=_wants_json(argv))
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        return tell(StoreFailed(f"{where}{error.strerror or error}"), as_json=_wants_json(argv))


def _hand_over(error: click.UsageError) -> None:
    from bernstein_cli.handing_over import hand_over_unknown  # noqa: PLC0415 - slow, and rarely used

    hand_over_unknown(error)


def tell(error: BernsteinError, *, as_json: bool) -> int:
    """Say what went wrong, once on each way out that is read; gives the exit code."""
    if as_json:
        document({"error": error.reason, "detail": error.message, **error.metadata})
    remark(f"{PROGRAM}: {error.message} [{error.reason}]")
    return exit_codes.exit_code_of(error)


def _tell_usage(error: click.UsageError, *, as_json: bool) -> int:
    text = error.format_message()
    if as_json:
        document({"error": "USAGE", "detail": text})
    if error.ctx is not None:
        for line in error.ctx.get_usage().splitlines():
            remark(line)
    remark(f"{PROGRAM}: {text} [USAGE]")
    return exit_codes.USAGE


def _wants_json(argv: Sequence[str]) -> bool:
    options = argv[: argv.index("--")] if "--" in argv else argv
    return any(option in JSON_OPTIONS for option in options)


def _complete(instruction: str) -> int:
    """Answer a shell that asks what may come next."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 - slow, and only for shells

    return shell_complete(cli, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
