"""Extends a key chain: fields come in, the entry is made here, and the head's key signs it."""

import sys
from dataclasses import dataclass
from pathlib import Path

from bernstein_formats.journal_reader import Row
from bernstein_formats.key_chain import KeyChain, entry_preimage
from bernstein_formats.key_chain_build import extended, revocation, succession
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import parse_public_pem
from bernstein_runtime.regular_file import read_named
from bernstein_signer.key import Key


@dataclass(frozen=True, slots=True)
class Extension:
    """What the next entry says: who follows (`successor` is a PEM file), or else who is revoked."""

    chain: Path
    kid: str
    at: str
    successor: Path | None = None
    reason: str = ""


def extend(extension: Extension, key: Key) -> bytes:
    """The longer chain. Raises ChainBroken for one that does not hold, or has another head."""
    chain = read_key_chain(read_named(extension.chain), None)
    entry = _entry(extension, chain)
    return extended(chain, entry, key.sign(entry_preimage(entry)))


def print_extended(extension: Extension, key: Key) -> None:
    """Write the longer chain to standard output; the chain's own file is the caller's."""
    sys.stdout.write(extend(extension, key).decode("ascii"))


def _entry(extension: Extension, chain: KeyChain) -> Row:
    if extension.successor is None:
        return revocation(chain, extension.kid, extension.at, extension.reason)
    successor = parse_public_pem(read_named(extension.successor))
    return succession(chain, successor, extension.kid, extension.at)
