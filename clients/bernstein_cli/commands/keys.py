"""`bernstein keys`: make a receipt key, show its public half; a signer process does both."""

import os
import subprocess
import sys
from pathlib import Path

import click

from bernstein_cli.output import document, remark, say
from bernstein_formats.errors import KeyUnusable
from bernstein_runtime.supervisor import scrubbed


@click.group()
def keys() -> None:
    """Make keys that sign receipts. Their bytes are read by the signer process alone."""


@keys.command()
@click.argument("path", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def new(path: str, as_json: bool) -> int:
    """Make an Ed25519 key in FILE, and its public half beside it."""
    public_path = _signer("--new-key", path).strip()
    if as_json:
        document({"key_path": str(Path(path)), "public_key_path": public_path})
        return 0
    say(f"key         {path}")
    say(f"public half {public_path}")
    remark("keep the key secret; give the public half to whoever verifies your receipts")
    return 0


@keys.command()
@click.argument("path", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def public(path: str, as_json: bool) -> int:
    """Print the public half of the key in FILE, as PEM."""
    pem = _signer("--public-key", path)
    if as_json:
        document({"key_path": str(Path(path)), "public_key_pem": pem})
    else:
        for line in pem.splitlines():
            say(line)
    return 0


def _signer(option: str, path: str) -> str:
    """What the signer process prints. Raises KeyUnusable with what it says is wrong."""
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "bernstein_signer", f"{option}={path}"],
        env=scrubbed(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the signer ended with {done.returncode}"]
        raise KeyUnusable(lines[-1].removeprefix("bernstein-signer: "), path=path)
    return done.stdout
