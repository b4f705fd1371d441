"""`bernstein verify receipt FILE`: offline, from the file's own bytes; nothing is started."""

from collections.abc import Iterator

import click

from bernstein_cli.output import GREEN, RED, Printed, document, remark, say
from bernstein_formats.receipt_verdict import ReceiptTier, ReceiptVerdict
from bernstein_formats.receipt_verify import verify_receipt as verdict_on

UNREADABLE_EXIT = 1


@click.command(name="receipt")
@click.argument("path", metavar="FILE")
@click.option("--public-key", metavar="PEM", help="The key that must have signed it.")
@click.option("--require-provenance", is_flag=True, help="Exit 3 unless a key was pinned.")
@click.option("--strict", is_flag=True, help="Exit 1 when the file's layout is not canonical.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def verify_receipt(
    *, path: str, public_key: str | None, require_provenance: bool, strict: bool, as_json: bool
) -> int:
    """Verify a run receipt with nothing but the file, and a pinned key if there is one.

    Exit codes: 0 verified, 1 unreadable or malformed, 2 tampered or signed with another key than
    the pinned one, 3 verified but no key was pinned and --require-provenance was given.
    """
    try:
        receipt = _read(path)
        pin = None if public_key is None else _read(public_key)
    except OSError as error:
        return _unreadable(f"{error.filename}: {error.strerror}", as_json=as_json)
    except ValueError as error:
        return _unreadable(f"{path!r} is no file name: {error}", as_json=as_json)
    verdict = verdict_on(receipt, pin)
    exit_code = verdict.exit_code(require_provenance=require_provenance, strict=strict)
    if as_json:
        document(receipt_document(verdict, public_key, require_provenance, exit_code))
    else:
        colour = GREEN if exit_code == 0 else RED
        for line in receipt_lines(verdict):
            say(line, colour)
            colour = ""
    if verdict.ok and verdict.tier is not ReceiptTier.PROVENANCE:
        remark(
            "the key is the receipt's own: pin the signer's with --public-key to know who signed"
        )
    return exit_code


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib alone would cost a tenth of the start
        return file.read()


def _unreadable(text: str, *, as_json: bool) -> int:
    """A file that is not there is as good as malformed."""
    if as_json:
        document({"ok": False, "status": "malformed", "tier": None, "errors": [text]})
    remark(f"bernstein: cannot read {text} [STORE_FAILED]")
    return UNREADABLE_EXIT


def receipt_document(
    verdict: ReceiptVerdict, public_key: str | None, require_provenance: bool, exit_code: int
) -> dict[str, Printed]:
    """The JSON: the peer's members in its order, then what is ours."""
    findings: list[Printed] = [
        {"reason": each.reason.value, "index": each.index, "member": each.member}
        for each in verdict.findings
    ]
    findings += [
        {"reason": "layout", "index": None, "member": None, "detail": text}
        for text in verdict.layout_findings
    ]
    return {
        "ok": verdict.ok,
        "status": verdict.status.value,
        "tier": None if verdict.tier is None else verdict.tier.value,
        "run_id": verdict.run_id,
        "journal_events": verdict.journal_events,
        "spine_entries": verdict.spine_entries,
        "divergent_step": verdict.divergent_step,
        "key_verdict": None,
        "errors": list(verdict.errors),
        "pinned_key": public_key,
        "key_chain": None,
        "require_provenance": require_provenance,
        "exit_code": exit_code,
        "key_id": verdict.key_id or None,
        "warnings": list(verdict.warnings),
        "findings": findings,
    }


def receipt_lines(verdict: ReceiptVerdict) -> Iterator[str]:
    """The verdict first, then what it is about."""
    if verdict.tier is ReceiptTier.PROVENANCE:
        yield "OK (provenance: pinned key)"
    elif verdict.ok:
        yield "OK (integrity-only: embedded key)"
    else:
        yield f"{verdict.status.value.upper()}: {'; '.join(verdict.errors)}"
    if verdict.run_id:
        yield f"run {verdict.run_id}"
    if verdict.journal_events:
        yield f"{verdict.journal_events} journal row(s), {verdict.spine_entries} spine entries"
    if verdict.divergent_step is not None:
        yield f"first divergent step: {verdict.divergent_step}"
    if verdict.key_id:
        yield f"key {verdict.key_id}"
    for finding in verdict.findings:
        place = "" if finding.index is None else f" at {finding.index}"
        yield f"finding: {finding.reason.value}{place} ({finding.member})"
    yield from (f"finding: {text}" for text in verdict.layout_findings)
    yield from (f"warning: {text}" for text in verdict.warnings)
