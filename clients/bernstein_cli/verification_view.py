"""What `replay RUN --verify` says: the peer's members and lines first, then what is ours.

Rules: docs/formats/event-journal.md, section 18. Any finding fails a run, whatever its chain says.
"""

from collections.abc import Iterator
from typing import TypeAlias

from bernstein_cli.output import Printed
from bernstein_client.values import Verification
from bernstein_formats.found_seal import SEAL_KEY_TEXTS
from bernstein_formats.journal_verdict import UNAUTHENTICATED_FIELDS

Document: TypeAlias = dict[str, Printed]


def verification_document(found: Verification, run_id: str) -> Document:
    """The JSON; `run_id` is the id as it was typed, as in the peer."""
    if found.has_diverged:
        return _divergence(found, run_id) | _ours(found)
    if found.provider_errors:
        return _provider(found, run_id) | _ours(found)
    document: Document = {
        "run_id": run_id,
        "chain_consistent": found.chain_consistent,
        "coverage": found.coverage,
        "identity": found.identity,
        "count": found.row_count,
    }
    if found.identity == "mismatched":
        return document | {"errors": list(found.errors)} | _ours(found)
    return document | {"unauthenticated_fields": list(UNAUTHENTICATED_FIELDS)} | _ours(found)


def _divergence(found: Verification, run_id: str) -> Document:
    return {
        "run_id": run_id,
        "step_index": found.divergent_index,
        "expected_hash": found.expected_hash or None,
        "actual_hash": _actual(found),
        "unauthenticated_fields": list(UNAUTHENTICATED_FIELDS),
        "chain_consistent": found.chain_consistent,
        "coverage": found.coverage,
        "identity": found.identity,
        "count": found.row_count,
        "divergent_line": found.divergent_line,
        "discarded_lines": list(found.discarded_lines),
        "discarded_count": found.discarded_count,
        "report_path": found.report_path or None,
        "errors": list(found.errors),
    }


def _actual(found: Verification) -> str | None:
    """The stored hash at the divergent row, where it may also be missing or empty."""
    return None if found.divergent_index is None else found.actual_hash


def _provider(found: Verification, run_id: str) -> Document:
    return {
        "run_id": run_id,
        "verified": False,
        "reason_code": "provider_state_mutation",
        "flagged_steps": list(found.flagged_steps),
        "errors": list(found.provider_errors),
    }


def _ours(found: Verification) -> Document:
    return {
        "head_hash": found.head_hash,
        "sealed_row_count": found.sealed_row_count or None,
        "pinned_key": found.pinned_key,
        "notes": list(found.notes),
        "findings": [
            {"reason": each.reason, "index": each.index, "member": each.member or None}
            for each in found.findings
        ],
    }


def verification_lines(found: Verification, run_id: str) -> Iterator[str]:
    """The lines for people."""
    if found.has_diverged:
        yield from _divergence_lines(found, run_id)
    elif found.provider_errors:
        yield f"PROVIDER STATE CHANGED in run {run_id}; its replay proves nothing"
        yield from found.provider_errors
    elif found.identity == "mismatched":
        yield f"IDENTITY MISMATCH for {run_id}"
        yield from found.errors
    else:
        steps = f"({found.row_count} steps)"
        yield f"CHAIN INTACT for {run_id} {steps}; identity={found.identity}"
        yield _unauthenticated()
    if found.pinned_key is not None:
        yield SEAL_KEY_TEXTS[found.pinned_key]
    for finding in found.findings:
        member = f" ({finding.member})" if finding.member else ""
        place = "" if finding.index is None else f" at step {finding.index}"
        yield f"finding: {finding.reason}{place}{member}"
    if found.findings:
        yield f"NOT CLEAN: {len(found.findings)} finding(s) that the chain does not cover"


def _divergence_lines(found: Verification, run_id: str) -> Iterator[str]:
    yield f"DIVERGENCE first divergent step {found.divergent_index} in run {run_id}"
    yield f"expected: {found.expected_hash or None}"
    yield f"actual:   {_actual(found)}"
    if found.report_path:
        yield f"Divergence report written to: {found.report_path}"
    yield _unauthenticated()
    if found.divergent_line is not None:
        yield f"physical line: {found.divergent_line} (counted from 1)"
    if found.discarded_count:
        listed = ", ".join(str(line + 1) for line in found.discarded_lines[:20])
        more = ", ..." if found.discarded_count > 20 else ""
        yield f"no rows on {found.discarded_count} physical line(s): {listed}{more}"
    yield f"coverage={found.coverage}; identity={found.identity}"
    yield from (error for error in found.errors if "seal" in error)


def _unauthenticated() -> str:
    return f"unauthenticated fields: {', '.join(UNAUTHENTICATED_FIELDS)}"


def verification_advice(found: Verification, command: str, repair: str) -> Iterator[str]:
    """How to go on: `command` asks for the run again, `repair` (if anything) puts it in order."""
    yield from (f"note: {note}" for note in found.notes)
    if found.divergent_line is not None:
        yield (
            f"compare line {found.divergent_line} of the journal with a copy that you trust;"
            f" what precedes it still verifies: `{command} --from-step {found.divergent_index}`"
        )
    elif found.discarded_count and repair:
        yield f"a torn end is put in order by `{repair}`"
