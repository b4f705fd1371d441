"""`bernstein keys`: make a receipt key, show its public half; a signer process does both."""

from pathlib import Path

import click

from bernstein_cli.commands.keys_chain import chain
from bernstein_cli.key_process import ask_signer, passphrase_argument, passphrase_option
from bernstein_cli.output import document, remark, say
from bernstein_runtime.key_uri import is_key_uri


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
@click.argument("source", metavar="FILE_OR_URI")
@passphrase_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def public(source: str, passphrase_file: Path | None, as_json: bool) -> int:
    """Print the public half of a key, as PEM: of the one in a file, or in a token or wherever else
    a URI says (docs/signer.md)."""
    arguments = [f"--public-key={source}", *passphrase_argument(passphrase_file)]
    pem = ask_signer(arguments, key_uri=is_key_uri(source))
    if as_json:
        where = source if is_key_uri(source) else str(Path(source))
        document({"key_path": where, "public_key_pem": pem})
    else:
        for line in pem.splitlines():
            say(line)
    return 0


keys.add_command(chain)
