"""`divergence_report.json`: what the peer leaves beside a journal that does not verify.

Rules: docs/formats/event-journal.md, section 14.
"""

import json


def divergence_report(
    run_id: str, step_index: int | None, expected_hash: str | None, actual_hash: str | None
) -> bytes:
    """The file's bytes; all but the run are null when lines were discarded and nothing else."""
    members = {
        "actual_hash": actual_hash,
        "expected_hash": expected_hash,
        "run_id": run_id,
        "step_index": step_index,
    }
    return json.dumps(members, indent=2, sort_keys=True).encode() + b"\n"
