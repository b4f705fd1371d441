"""`bernstein verify receipt FILE`: from the file's own bytes; without --remote nothing is asked."""

import os
from pathlib import Path

import click

from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import PROGRAM
from bernstein_verify.questions import Question, ask, read_file, unreadable_text, usage_fault
from bernstein_verify.receipt_view import tell_folder, tell_receipt
from bernstein_verify.receipts import check_receipt, unreadable


@click.command(name="receipt")
@click.argument("path", metavar="FILE")
@click.option("--public-key", metavar="PEM", help="The key that must have signed it.")
@click.option(
    "--key-chain",
    metavar="CHAIN",
    help="The succession of the signer's keys; --public-key is then its root.",
)
@click.option("--signed-at", metavar="INSTANT", help="When it was signed, if you know it surely.")
@click.option("--chain-entries", type=int, metavar="N", help="How many entries CHAIN must have.")
@click.option("--chain-head", metavar="HEX", help="The hash of an entry that CHAIN must hold.")
@click.option("--expect-run", metavar="ID", help="The run that it must be the receipt of.")
@click.option("--require-provenance", is_flag=True, help="Exit 3 unless a key was pinned.")
@click.option("--strict", is_flag=True, help="Exit 1 when the file's layout is not canonical.")
@click.option(
    "--withhold",
    type=(str, click.Path(path_type=Path)),
    metavar="STEPS OUT",
    help="Write a copy without the payloads of these steps (like 3,5-7) under the same signature.",
)
@click.option(
    "--remote",
    is_flag=True,
    help="Ask the signer of the project or the fleet, too: does it stand behind this receipt?",
)
@click.option(
    "--sdd-dir",
    default=".sdd",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The state folder, for --remote.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def verify_receipt(
    *,
    path: str,
    public_key: str | None,
    key_chain: str | None,
    signed_at: str | None,
    chain_entries: int | None,
    chain_head: str | None,
    expect_run: str | None,
    require_provenance: bool,
    strict: bool,
    withhold: tuple[str, Path] | None,
    remote: bool,
    sdd_dir: Path,
    as_json: bool,
) -> int:
    """Verify a run receipt with nothing but the file, and a pinned key if there is one.

    FILE may be a folder: then every run-receipt.json below it is verified, and its own *.json files
    unless it is the folder of a run; the exit code is the worst one. The COSE file beside a
    receipt (r.cose of r.json, else run-receipt.cose) is verified with it.

    Exit codes: 0 verified, 1 unreadable or malformed, 2 tampered, signed with another key than the
    pinned one, not of the expected run or (with --remote) not the signer's, 3 verified but no key
    was pinned and --require-provenance was given, 4 the key chain does not hold or does not vouch
    for the key.
    """
    fault = usage_fault(
        path,
        expect_run,
        key_chain=key_chain,
        public_key=public_key,
        signed_at=signed_at,
        chain_entries=chain_entries,
        chain_head=chain_head,
    )
    if fault:
        raise click.UsageError(fault)
    try:
        question = ask(
            public_key=public_key,
            key_chain=key_chain,
            signed_at=signed_at,
            chain_entries=chain_entries,
            chain_head=chain_head,
            expect_run=expect_run,
            require_provenance=require_provenance,
            strict=strict,
        )
    except (OSError, ValueError) as error:
        return tell_receipt(
            PROGRAM, unreadable(path, unreadable_text(error)), Question(), as_json=as_json
        )
    if remote:
        return _remote(path, question, withhold, sdd_dir, as_json=as_json)
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib is slow where it can be done without
        return _one(path, question, withhold, as_json=as_json)
    if withhold is not None:
        raise click.UsageError("--withhold makes a copy of one receipt, not of a folder")
    return tell_folder(PROGRAM, path, question, as_json=as_json)


def _remote(
    path: str,
    question: Question,
    withhold: tuple[str, Path] | None,
    sdd_dir: Path,
    *,
    as_json: bool,
) -> int:
    if withhold is not None or os.path.isdir(path):  # noqa: PTH112 - see above
        raise click.UsageError("--remote is about one receipt, as it is")
    require_folder(sdd_dir)
    from bernstein_cli.remote_receipt import answer_remote  # noqa: PLC0415 - gRPC, rarely used

    return answer_remote(PROGRAM, path, question, sdd_dir, as_json=as_json)


def _one(path: str, question: Question, withhold: tuple[str, Path] | None, *, as_json: bool) -> int:
    """Verify one receipt; a copy is made of one that is as it should be, and verified instead."""
    checked = check_receipt(path, question)
    if withhold is not None and checked.verdict is not None and checked.exit_code == 0:
        from bernstein_cli.withheld_copy import write_withheld_copy  # noqa: PLC0415 - rarely used

        steps, out = withhold
        write_withheld_copy(read_file(path), steps, out, checked.verdict.journal_events)
        checked = check_receipt(str(out), question)
    return tell_receipt(PROGRAM, checked, question, as_json=as_json)
