"""What `replay RUN --re-derive` says, in the peer's words (docs/formats/re-derivation.md, 9)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from bernstein_cli.output import Printed
from bernstein_client.values import Rederived
from bernstein_formats.recording_gaps import GAPS


def rederivation_document(found: Rederived) -> dict[str, Printed]:
    """The nine members of the peer's JSON, our notes and findings."""
    return {
        "ok": found.ok,
        "run_id": found.run_id,
        "recorded_head": found.recorded_head,
        "derived_head": found.derived_head,
        "step_count": found.step_count,
        "step_index": found.step_index,
        "reason": found.reason,
        "reason_code": found.reason_code,
        "rule": found.rule,
        "notes": list(found.notes),
        "findings": [asdict(each) for each in found.findings],
    }


def rederivation_lines(found: Rederived) -> Iterator[str]:
    """The lines for people."""
    if found.ok:
        steps = f"{found.step_count} coordination step(s) reproduce the recorded head"
        yield f"RE-DERIVED run {found.run_id}: {steps}"
        yield f"head: {found.derived_head}"
        return
    underivable = found.reason_code == "underivable_step"
    what = "UNDERIVABLE STEP" if underivable else "RE-DERIVE MISMATCH"
    yield f"{what} run {found.run_id}: {found.reason}"
    yield f"recorded head: {found.recorded_head}"
    yield f"derived head:  {found.derived_head}"
    counts = Counter(each.reason for each in found.findings)
    gaps = [f"{reason}: {count}" for reason, count in counts.items() if reason in GAPS]
    if gaps:
        yield f"known gaps of the peer's recording: {', '.join(gaps)}"
    if gaps and counts.keys() <= GAPS:
        yield "but for these rows the schedule follows the rules"
