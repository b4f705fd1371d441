"""`bernstein-verify key-chain FILE`."""

import argparse

from bernstein_formats.receipt_trust import ChainEvidence
from bernstein_verify.key_chain_view import tell_key_chain
from bernstein_verify.questions import read_file, usage_fault


def add_options(parser: argparse.ArgumentParser) -> None:
    """What pins the chain at both ends."""
    add = parser.add_argument
    add("path", metavar="FILE", help="the chain")
    add("--public-key", metavar="PEM", help="the root's key")
    add("--chain-entries", type=int, metavar="N", help="entries that the chain is known to have")
    add("--chain-head", metavar="HEX", help="hash of an entry that the chain is known to have")
    add("--json", dest="as_json", action="store_true", help="one JSON document on stdout")


def answer(options: argparse.Namespace) -> int:
    """Verify the chain; gives the exit code. Raises ChainBroken where it does not hold."""
    fault = usage_fault(
        key_chain=options.path, chain_entries=options.chain_entries, chain_head=options.chain_head
    )
    if fault:
        options.parser.error(fault)
    pin = None if options.public_key is None else read_file(options.public_key)
    evidence = ChainEvidence(
        read_file(options.path),
        known_entry_count=options.chain_entries,
        known_head_hash=options.chain_head,
    )
    tell_key_chain(evidence, pin, as_json=options.as_json)
    return 0
