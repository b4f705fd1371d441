"""`bernstein-verify journal FILE`."""

import argparse
from collections.abc import Iterator
from typing import Final

from bernstein_formats.found_seal import SEAL_KEY_TEXTS
from bernstein_formats.journal_verdict import Identity, JournalSeal, JournalVerification
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.public_key import parse_public_pem
from bernstein_formats.receipt_verdict import EXIT_PROVENANCE_REQUIRED
from bernstein_formats.seal import check_seal, parse_seal
from bernstein_verify.output import GREEN, RED, Printed, document, remark, say
from bernstein_verify.questions import open_file, read_file

_READ_BYTES: Final = 1024 * 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    """The journal, and who must have sealed it."""
    add = parser.add_argument
    add("path", metavar="FILE", help="the journal")
    add("--seal", metavar="FILE", help="the seal.json that was made of it")
    add("--public-key", metavar="PEM", help="the key that must have made the seal")
    add("--require-provenance", action="store_true", help="exit 3 unless the seal's key is pinned")
    add("--json", dest="as_json", action="store_true", help="one JSON document on stdout")


def answer(options: argparse.Namespace) -> int:
    """Verify the journal; gives the exit code. Raises where the seal itself does not hold."""
    if options.public_key is not None and options.seal is None:
        options.parser.error("--public-key is the key of a --seal")
    seal = _seal(options.seal, options.public_key)
    found = verify_journal(_chunks(options.path), seal)
    pinned = None if seal is None else options.public_key is not None
    if options.as_json:
        document(_document(found) | {"pinned_key": pinned})
    else:
        colour = GREEN if found.intact else RED
        for line in _lines(found, pinned):
            say(line, colour)
            colour = ""
    if found.identity is Identity.UNVERIFIABLE:
        remark("a journal without its seal may have been cut or made anew; give --seal")
    elif not pinned:
        remark("anybody can make such a seal: pin the signer's key with --public-key")
    if not found.intact:
        return 1
    return EXIT_PROVENANCE_REQUIRED if options.require_provenance and not pinned else 0


def _seal(path: str | None, key_path: str | None) -> JournalSeal | None:
    if path is None:
        return None
    seal = parse_seal(read_file(path))
    check_seal(seal, None if key_path is None else parse_public_pem(read_file(key_path)))
    return seal.entry.body.journal_seal


def _chunks(path: str) -> Iterator[bytes]:
    with open_file(path) as file:
        while chunk := file.read(_READ_BYTES):
            yield chunk


def _document(found: JournalVerification) -> dict[str, Printed]:
    return {
        "ok": found.intact,
        "chain_consistent": found.chain_consistent,
        "coverage": found.coverage,
        "identity": found.identity.value,
        "count": found.count,
        "head_hash": found.head,
        "step_index": found.divergent_index,
        "divergent_line": found.divergent_line,
        "discarded_lines": list(found.discarded_line_indices),
        "discarded_count": found.discarded_count,
        "errors": list(found.errors),
        "unauthenticated_fields": list(found.unauthenticated_fields),
        "findings": [
            {"reason": each.reason.value, "index": each.index, "member": each.member}
            for each in found.findings
        ],
    }


def _lines(found: JournalVerification, pinned: bool | None) -> Iterator[str]:
    word = "OK" if found.intact else "NOT INTACT"
    yield f"{word} ({found.count} rows; coverage {found.coverage}; identity {found.identity})"
    yield f"head {found.head}"
    if pinned is not None:
        yield SEAL_KEY_TEXTS[pinned]
    yield from (f"error: {error}" for error in found.errors)
    for finding in found.findings:
        yield f"finding: {finding.reason} at step {finding.index}"
