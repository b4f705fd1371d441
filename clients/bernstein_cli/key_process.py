"""Asking a signer process for one thing about a key: it alone reads the key, answers, and ends."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from bernstein_formats.errors import KeyUnusable
from bernstein_runtime.protection import hide
from bernstein_runtime.supervisor import scrubbed

_PREFIX: Final = "bernstein-signer: "
passphrase_option: Final = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Its first line is the passphrase of an encrypted key.",
)


def passphrase_argument(path: Path | None) -> list[str]:
    """How the signer process is told of the file."""
    return [] if path is None else [f"--passphrase-file={path.absolute()}"]


def ask_signer(arguments: Sequence[str], key_variable: str = "", *, key_uri: bool = False) -> str:
    """What the process prints. `key_variable` is the one more variable that it inherits.

    With `key_uri` it inherits all: a token's library or a plug-in has settings of its own there.
    Raises KeyUnusable with what it says is wrong.
    """
    environment = dict(os.environ) if key_uri else scrubbed(os.environ)
    if key_variable and key_variable in os.environ:
        hide()
        environment[key_variable] = os.environ[key_variable]
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "bernstein_signer", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the signer ended with {done.returncode}"]
        raise KeyUnusable(lines[-1].removeprefix(_PREFIX))
    return done.stdout
