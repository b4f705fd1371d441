"""`bernstein-verify`: one question to one file or folder, answered offline.

Data goes to stdout, one JSON document under --json; what went wrong goes to stderr, one line.
"""

import argparse
import gc
import importlib
import os
import sys
from typing import Final, NoReturn

# Loading modules makes no garbage, and looking for it takes a tenth of the start.
gc.set_threshold(100_000, 50, 50)

from bernstein_formats.errors import BernsteinError  # noqa: E402 - after the line above, on purpose
from bernstein_verify import PROGRAM  # noqa: E402 - likewise
from bernstein_verify.output import document, remark, with_outputs  # noqa: E402 - likewise

USAGE_EXIT: Final = 2
FAILED_EXIT: Final = 1
_DESCRIPTION: Final = "Verify evidence of AI agent runs, offline, from the named files alone."

# Name → module, loaded when it is used, and its line in the help.
COMMANDS: Final = {
    "receipt": ("bernstein_verify.receipt_command", "Verify a run receipt, or a folder of them."),
    "key-chain": (
        "bernstein_verify.key_chain_command",
        "Verify a key succession chain from its root on.",
    ),
    "archive": ("bernstein_verify.archive_command", "Verify the exported archive of a session."),
    "journal": ("bernstein_verify.journal_command", "Verify an event journal, and its seal."),
}


class _Parser(argparse.ArgumentParser):
    """Repeats what was typed as one line, and as a terminal should see it."""

    def error(self, message: str) -> NoReturn:
        for line in self.format_usage().splitlines():
            remark(line)
        remark(f"{PROGRAM}: {message} [USAGE]")
        self.exit(USAGE_EXIT)


def main() -> int:
    """Answer the command line of this process; gives the exit code."""
    return with_outputs(PROGRAM, lambda: _run(sys.argv[1:]))


def program() -> NoReturn:
    """Run, and end without tidying up the interpreter."""
    os._exit(main())


def _run(arguments: list[str]) -> int:
    parser = _Parser(prog=PROGRAM, description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in arguments[:1]:
            command.set_defaults(parser=command)
            importlib.import_module(module).add_options(command)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:
        return USAGE_EXIT if ended.code else 0
    try:
        code: int = importlib.import_module(COMMANDS[options.command][0]).answer(options)
    except BernsteinError as error:
        return _failed(error.message, error.reason, as_json=options.as_json)
    except OSError as error:
        text = f"cannot read {error.filename}: {error.strerror}"
        return _failed(text, "STORE_FAILED", as_json=options.as_json)
    return code


def _failed(text: str, reason: str, *, as_json: bool) -> int:
    if as_json:
        document({"error": reason, "detail": text})
    remark(f"{PROGRAM}: {text} [{reason}]")
    return FAILED_EXIT


if __name__ == "__main__":
    program()
