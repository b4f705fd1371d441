"""The record of accepted losses is read back as it was written, for whom it concerns."""

import pytest

from bernstein_formats.accepted_loss import AcceptedLoss, losses_of
from bernstein_formats.errors import InvalidInput

SPINE = AcceptedLoss("2026-03-01T10:00:00Z", "lineage/r1/spine.jsonl", "9 bytes", 'ü "why"')
AUDIT = AcceptedLoss("2026-03-01T10:00:00Z", "audit/2026-03-01.jsonl", "1 byte", "x")
RECORD = SPINE.as_line() + AUDIT.as_line()


def test_losses_of_a_run_and_of_the_audit_log_are_given():
    assert list(losses_of(RECORD, [SPINE.name])) == [SPINE, AUDIT]
    assert list(losses_of(RECORD, ["lineage/r2/spine.jsonl"])) == [AUDIT]
    assert SPINE.note.endswith('spine.jsonl: 9 bytes (ü "why")')


@pytest.mark.parametrize("line", [b"{}\n", b"[1]\n", b"torn", b'{"at":1}\n', b"[" * 5000])
def test_a_record_that_was_changed_is_said_to_be(line):
    with pytest.raises(InvalidInput):
        list(losses_of(RECORD + line, []))
