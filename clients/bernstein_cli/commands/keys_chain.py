"""`bernstein keys chain`: which key follows which, and which is not to be trusted any more.

The chain's file is read and written here; each entry is signed by a signer process, which alone
reads the key of the chain's head.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from bernstein_cli.key_process import ask_signer, passphrase_argument, passphrase_option
from bernstein_cli.output import YELLOW, document, remark, say
from bernstein_cli.signing_key import NAME_VARIABLE, PATH_VARIABLE, SigningKey, choose_key
from bernstein_cli.whole_file import replace_file, write_new_file
from bernstein_formats.errors import Conflict
from bernstein_formats.key_chain_build import new_key_chain, revocation, succession
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import parse_public_pem
from bernstein_formats.receipt_trust import ChainEvidence
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.key_uri import is_key_uri
from bernstein_runtime.regular_file import read_named
from bernstein_verify.key_chain_view import chain_notes, tell_key_chain

_CHAIN: Final = click.argument("chain_file", metavar="CHAIN", type=click.Path(path_type=Path))
_KEY_PATH: Final = click.option(
    "--signing-key-path",
    metavar="FILE_OR_URI",
    help="The key of the chain's head: PEM, 32 raw bytes, or the URI of a key in a token.",
)
_KEY_VARIABLE: Final = click.option(
    "--signing-env-var", metavar="NAME", help="The variable that holds it."
)
_AT: Final = click.option("--at", metavar="INSTANT", help="Since when.  [default: now]")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group()
def chain() -> None:
    """Keep the succession of your receipt keys, so that a lost one can be replaced and revoked.

    Whoever verifies pins the root's public key once, and is given the chain's file with the
    receipts. Its end can be cut off unseen: tell them the number of entries as well.
    """


@chain.command()
@_CHAIN
@click.argument("public_key", metavar="ROOT_PEM", type=click.Path(path_type=Path))
@click.option("--kid", required=True, metavar="KID", help="The key's name, as in its receipts.")
@_JSON
def new(chain_file: Path, public_key: Path, kid: str, as_json: bool) -> int:
    """Begin the chain CHAIN with the public key in ROOT_PEM."""
    write_new_file(chain_file, new_key_chain(parse_public_pem(read_named(public_key)), kid))
    return _tell(chain_file, as_json=as_json)


@chain.command()
@_CHAIN
@click.argument("public_key", metavar="NEW_PEM", type=click.Path(path_type=Path))
@click.option("--kid", required=True, metavar="KID", help="The new key's name in its receipts.")
@_KEY_PATH
@_KEY_VARIABLE
@passphrase_option
@_AT
@_JSON
def rotate(
    *,
    chain_file: Path,
    public_key: Path,
    kid: str,
    signing_key_path: str | None,
    signing_env_var: str | None,
    passphrase_file: Path | None,
    at: str | None,
    as_json: bool,
) -> int:
    """Have the head of CHAIN vouch for the public key in NEW_PEM, which is then the head."""
    at = at or _now()
    successor = parse_public_pem(read_named(public_key))
    succession(read_key_chain(read_named(chain_file), None), successor, kid, at)
    key = _head_key(signing_key_path, signing_env_var)
    fields = [f"--kid={kid}", f"--at={at}", f"--successor={public_key}"]
    _extend(chain_file, key, [*fields, *passphrase_argument(passphrase_file)])
    return _tell(chain_file, as_json=as_json)


@chain.command()
@_CHAIN
@click.option("--kid", required=True, metavar="KID", help="The key that was lost, or stolen.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it becomes part of the chain.")
@_KEY_PATH
@_KEY_VARIABLE
@passphrase_option
@_AT
@_JSON
def revoke(
    *,
    chain_file: Path,
    kid: str,
    reason: str,
    signing_key_path: str | None,
    signing_env_var: str | None,
    passphrase_file: Path | None,
    at: str | None,
    as_json: bool,
) -> int:
    """Revoke a key of CHAIN: what it signed since then is trusted no more.

    Rotate first when the key is the head: a revoked head vouches for nothing.
    """
    at = at or _now()
    revocation(read_key_chain(read_named(chain_file), None), kid, at, reason)
    key = _head_key(signing_key_path, signing_env_var)
    fields = [f"--kid={kid}", f"--at={at}", f"--reason={reason}"]
    _extend(chain_file, key, [*fields, *passphrase_argument(passphrase_file)])
    return _tell(chain_file, as_json=as_json)


@chain.command()
@_CHAIN
@click.option("--public-key", metavar="PEM", type=click.Path(path_type=Path), help="The root's.")
@click.option("--chain-entries", type=click.IntRange(0), metavar="N", help="How many it must have.")
@_JSON
def show(
    chain_file: Path, public_key: Path | None, chain_entries: int | None, as_json: bool
) -> int:
    """Verify CHAIN and list its keys."""
    pin = None if public_key is None else read_named(public_key)
    evidence = ChainEvidence(read_named(chain_file), known_entry_count=chain_entries)
    tell_key_chain(evidence, pin, as_json=as_json)
    return 0


def _head_key(path: str | None, variable: str | None) -> SigningKey:
    key = choose_key(path, variable, "", os.environ)
    if key.is_resident:
        raise click.UsageError(
            "the key of the chain's head must sign: give --signing-key-path FILE or"
            f" --signing-env-var NAME, or set {PATH_VARIABLE} or {NAME_VARIABLE}"
        )
    return SigningKey(key.path, key.variable)


def _extend(chain_file: Path, key: SigningKey, fields: list[str]) -> None:
    """Have the next entry signed. The file must not change meanwhile: a chain has one heir."""
    before = read_named(chain_file)
    arguments = [f"--extend-chain={chain_file}", *key.arguments(), *fields]
    answer = ask_signer(arguments, key.variable, key_uri=is_key_uri(key.path))
    if read_named(chain_file) != before:
        raise Conflict(f"{chain_file} was changed meanwhile and stays as it is; try again")
    replace_file(chain_file, answer.encode())


def _tell(chain_file: Path, *, as_json: bool) -> int:
    read = read_key_chain(read_named(chain_file), None)
    count, head_hash = len(read.entries), read.head_hash
    if as_json:
        document(
            {
                "chain_path": str(chain_file),
                "entries": count,
                "head": read.head.kid,
                "head_hash": head_hash,
                "notes": list(chain_notes(read)),
            }
        )
        return 0
    say(f"chain     {chain_file}")
    say(f"entries   {count}")
    say(f"head      {read.head.kid}")
    say(f"head hash {head_hash}")
    for note in chain_notes(read):
        remark(note, YELLOW)
    remark(
        "verify with `bernstein verify receipt FILE --public-key ROOT_PEM"
        f" --key-chain {chain_file} --chain-entries {count}`"
    )
    return 0


def _now() -> str:
    seconds = int(SystemClock().now_seconds())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
