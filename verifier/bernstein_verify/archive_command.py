"""`bernstein-verify archive FILE`."""

import argparse
from collections.abc import Iterator

from bernstein_formats.public_key import parse_public_pem
from bernstein_formats.receipt_verdict import EXIT_PROVENANCE_REQUIRED
from bernstein_formats.session_receipt_verify import SessionReceiptVerdict, verify_session_receipt
from bernstein_verify.output import GREEN, RED, Printed, document, remark, say
from bernstein_verify.questions import mapped_file, read_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """The archive, and what is known of it."""
    add = parser.add_argument
    add("path", metavar="FILE", help="the archive, a tar file")
    add("--public-key", metavar="PEM", help="the key that must have signed it")
    add("--expect-head", metavar="HEX", help="the hash of the last step, known from elsewhere")
    add("--require-provenance", action="store_true", help="exit 3 unless a key was pinned")
    add("--json", dest="as_json", action="store_true", help="one JSON document on stdout")


def answer(options: argparse.Namespace) -> int:
    """Verify the archive; gives the exit code. Raises ReceiptMalformed where it is none."""
    key = None if options.public_key is None else parse_public_pem(read_file(options.public_key))
    with mapped_file(options.path) as archive:
        verdict = verify_session_receipt(archive, key, options.expect_head)
    if options.as_json:
        document(_document(verdict) | {"pinned_key": key is not None})
    else:
        colour = GREEN if verdict.ok else RED
        for line in _lines(verdict):
            say(line, colour)
            colour = ""
    if key is None:
        remark("nobody vouches for the archive: pin its signer's key with --public-key")
    if not verdict.ok:
        return 1
    return EXIT_PROVENANCE_REQUIRED if options.require_provenance and key is None else 0


def _document(verdict: SessionReceiptVerdict) -> dict[str, Printed]:
    return {
        "ok": verdict.ok,
        "agent_id": verdict.manifest.agent_id,
        "head_hash": verdict.head_hash,
        "steps": verdict.steps,
        "signed": verdict.signed,
        "faults": [
            {"kind": fault.kind.value, "line": fault.line, "text": fault.text}
            for fault in verdict.faults
        ],
        "fault_count": verdict.fault_count,
        "missing_blobs": list(verdict.missing_blobs),
        "unauthenticated": list(verdict.unauthenticated),
        "layout_findings": list(verdict.layout_findings),
    }


def _lines(verdict: SessionReceiptVerdict) -> Iterator[str]:
    whole = "CHAIN OK, NOT ALL THERE" if verdict.missing_blobs else "OK"
    word = whole if verdict.ok else "NOT INTACT"
    yield f"{word} ({verdict.steps} steps of {verdict.manifest.agent_id})"
    yield f"head {verdict.head_hash}"
    yield from (f"fault: {fault.text}" for fault in verdict.faults)
    yield from (f"finding: {text}" for text in verdict.layout_findings)
    if verdict.missing_blobs:
        yield f"not in the archive: {len(verdict.missing_blobs)} blob(s) that its rows refer to"
    if verdict.unauthenticated:
        yield f"nobody vouches for: {', '.join(verdict.unauthenticated)}"
