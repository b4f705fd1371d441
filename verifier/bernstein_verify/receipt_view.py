"""What is shown of a receipt's verdict: the peer's JSON members in its order, then ours; lines."""

from collections.abc import Iterator, Sequence

from bernstein_formats.key_chain import Completeness
from bernstein_formats.receipt_verdict import ChainFacts, ReceiptTier, ReceiptVerdict
from bernstein_verify.output import GREEN, RED, Printed, document, remark, say
from bernstein_verify.questions import Question
from bernstein_verify.receipts import Checked, check_folder, unreadable, worst_exit_code


def tell_receipt(program: str, checked: Checked, question: Question, *, as_json: bool) -> int:
    """Say what one receipt is worth; gives the exit code. `program` is who says so."""
    if as_json:
        document(receipt_document(checked, question))
    verdict = checked.verdict
    if verdict is None:
        remark(f"{program}: cannot read {checked.error} [STORE_FAILED]")
        return checked.exit_code
    if not as_json:
        colour = GREEN if checked.exit_code == 0 else RED
        for line in receipt_lines(verdict):
            say(line, colour)
            colour = ""
    if verdict.ok and verdict.tier is not ReceiptTier.PROVENANCE:
        remark(
            "the key is the receipt's own: pin the signer's with --public-key to know who signed"
        )
    return checked.exit_code


def tell_folder(program: str, folder: str, question: Question, *, as_json: bool) -> int:
    """Say what each receipt of a folder is worth; gives the worst exit code."""
    checked = list(check_folder(folder, question))
    if not checked:
        nothing = unreadable(folder, f"{folder}: there is no receipt in this folder")
        return tell_receipt(program, nothing, question, as_json=as_json)
    codes = [each.exit_code for each in checked]
    if as_json:
        document(folder_document(checked, question))
    else:
        for each in checked:
            line = each.error if each.verdict is None else verdict_line(each.verdict)
            run = "" if each.verdict is None else f"  run {each.verdict.run_id}"
            say(f"{each.path}: {line}{run}", GREEN if each.exit_code == 0 else RED)
        say(f"{len(checked)} receipt(s), {sum(1 for code in codes if code)} not verified")
    return worst_exit_code(codes)


def receipt_document(checked: Checked, question: Question) -> dict[str, Printed]:
    """The JSON of one receipt."""
    verdict = checked.verdict
    if verdict is None:
        return {"ok": False, "status": "malformed", "tier": None, "errors": [checked.error]}
    chain = verdict.chain or ChainFacts()
    return {
        "ok": verdict.ok,
        "status": verdict.status.value,
        "tier": None if verdict.tier is None else verdict.tier.value,
        "run_id": verdict.run_id,
        "journal_events": verdict.journal_events,
        "spine_entries": verdict.spine_entries,
        "divergent_step": verdict.divergent_step,
        "key_verdict": chain.verdict,
        "errors": list(verdict.errors),
        "pinned_key": question.pin_path is not None,
        "key_chain": question.chain_path is not None,
        "require_provenance": question.require_provenance,
        "exit_code": checked.exit_code,
        "key_id": verdict.key_id or None,
        "warnings": list(verdict.warnings),
        "findings": _findings(verdict),
        "withheld_events": verdict.withheld_events,
        "cose_verified": verdict.cose_verified,
        "key_problem": chain.problem,
        "chain_completeness": chain.completeness,
        "chain_entries": chain.entry_count,
        "chain_head": chain.head_hash,
    }


def folder_document(checked: Sequence[Checked], question: Question) -> dict[str, Printed]:
    """The JSON of a folder."""
    codes = [each.exit_code for each in checked]
    return {
        "ok": not any(codes),
        "exit_code": worst_exit_code(codes),
        "receipts": [{"path": each.path, **receipt_document(each, question)} for each in checked],
    }


def _findings(verdict: ReceiptVerdict) -> list[Printed]:
    findings: list[Printed] = [
        {"reason": each.reason.value, "index": each.index, "member": each.member}
        for each in verdict.findings
    ]
    return findings + [
        {"reason": "layout", "index": None, "member": None, "detail": text}
        for text in verdict.layout_findings
    ]


def receipt_lines(verdict: ReceiptVerdict) -> Iterator[str]:
    """The lines for people: the verdict first, then what it is about."""
    yield verdict_line(verdict)
    if verdict.run_id:
        yield f"run {verdict.run_id}"
    if verdict.journal_events:
        yield f"{verdict.journal_events} journal row(s), {verdict.spine_entries} spine entries"
    if verdict.withheld_events:
        yield f"{verdict.withheld_events} of the rows came without their payload (withheld)"
    if verdict.divergent_step is not None:
        yield f"first divergent step: {verdict.divergent_step}"
    if verdict.key_id:
        yield f"key {verdict.key_id}"
    yield from chain_lines(verdict.chain)
    if verdict.cose_verified:
        yield "the COSE file beside it holds as well"
    for finding in verdict.findings:
        place = "" if finding.index is None else f" at {finding.index}"
        yield f"finding: {finding.reason.value}{place} ({finding.member})"
    yield from (f"finding: {text}" for text in verdict.layout_findings)
    yield from (f"warning: {text}" for text in verdict.warnings)


def verdict_line(verdict: ReceiptVerdict) -> str:
    """The verdict in one line."""
    if not verdict.ok:
        return f"{verdict.status.value.upper()}: {'; '.join(verdict.errors)}"
    if verdict.tier is not ReceiptTier.PROVENANCE:
        return "OK (integrity-only: embedded key)"
    by = "pinned key" if verdict.chain is None else "key chain of the pinned root"
    return f"OK (provenance: {by})"


def chain_lines(chain: ChainFacts | None) -> Iterator[str]:
    """What a key chain said, and whether its end may have been cut off."""
    if chain is None:
        return
    if chain.verdict is not None:
        yield f"key verdict: {chain.verdict}"
    if chain.completeness is None:
        return
    yield f"key chain of {chain.entry_count} entries, the last one {chain.head_hash}"
    if chain.completeness is Completeness.UNVERIFIABLE:
        yield (
            "completeness of the chain: unverifiable; entries cut off its end leave no trace, so"
            " pin it with --chain-entries or --chain-head"
        )
    else:
        yield "completeness of the chain: pinned; it holds all that was known of it"
