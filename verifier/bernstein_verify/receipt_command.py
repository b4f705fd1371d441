"""`bernstein-verify receipt FILE|FOLDER`."""

import argparse
import os

from bernstein_verify import PROGRAM
from bernstein_verify.questions import Question, ask, unreadable_text, usage_fault
from bernstein_verify.receipt_view import tell_folder, tell_receipt
from bernstein_verify.receipts import check_receipt, unreadable


def add_options(parser: argparse.ArgumentParser) -> None:
    """The peer's options, and ours."""
    add = parser.add_argument
    add("path", metavar="FILE", help="a receipt, or a folder of receipts")
    add("--public-key", metavar="PEM", help="the key that must have signed; with a chain, its root")
    add("--key-chain", metavar="FILE", help="the succession chain of the signer's keys")
    add("--signed-at", metavar="INSTANT", help="when it was signed, from a source that you trust")
    add("--chain-entries", type=int, metavar="N", help="entries that the chain is known to have")
    add("--chain-head", metavar="HEX", help="hash of an entry that the chain is known to have")
    add("--expect-run", metavar="ID", help="the run that the receipt must be of")
    add("--require-provenance", action="store_true", help="exit 3 unless a key was pinned")
    add("--strict", action="store_true", help="exit 1 when the file's layout is not canonical")
    add("--json", dest="as_json", action="store_true", help="one JSON document on stdout")


def answer(options: argparse.Namespace) -> int:
    """Verify what the options name; gives the exit code."""
    path: str = options.path
    chain_options = {
        name: getattr(options, name)
        for name in ("key_chain", "signed_at", "chain_entries", "chain_head")
    }
    fault = usage_fault(path, options.expect_run, public_key=options.public_key, **chain_options)
    if fault:
        options.parser.error(fault)
    try:
        question = ask(
            public_key=options.public_key,
            expect_run=options.expect_run,
            require_provenance=options.require_provenance,
            strict=options.strict,
            **chain_options,
        )
    except (OSError, ValueError) as error:
        return tell_receipt(
            PROGRAM, unreadable(path, unreadable_text(error)), Question(), as_json=options.as_json
        )
    if os.path.isdir(path):  # noqa: PTH112 - pathlib alone would cost a tenth of the start
        return tell_folder(PROGRAM, path, question, as_json=options.as_json)
    return tell_receipt(PROGRAM, check_receipt(path, question), question, as_json=options.as_json)
