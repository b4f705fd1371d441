"""What `replay RUN --re-derive` says, in the peer's words (docs/formats/re-derivation.md, 9)."""

from collections.abc import Iterator

from bernstein_cli.output import Printed
from bernstein_client.values import Rederived


def rederivation_document(found: Rederived) -> dict[str, Printed]:
    """The nine members of the peer's JSON, and our notes."""
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
