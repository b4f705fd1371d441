"""`bernstein keys`: make a receipt key, show its public half; a signer process does both."""

from pathlib import Path

import click

from bernstein_cli.commands.keys_chain import chain
from bernstein_cli.key_process import ask_signer
from bernstein_cli.output import document, remark, say


@click.group()
def keys() -> None:
    """Make keys that sign receipts. Their bytes are read by the signer process alone."""


@keys.command()
@click.argument("path", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def new(path: str, as_json: bool) -> int:
    """Make an Ed25519 key in FILE, and its public half beside it."""
    public_path = ask_signer([f"--new-key={path}"]).strip()
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
    pem = ask_signer([f"--public-key={path}"])
    if as_json:
        document({"key_path": str(Path(path)), "public_key_pem": pem})
    else:
        for line in pem.splitlines():
            say(line)
    return 0


keys.add_command(chain)
