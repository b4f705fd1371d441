"""Each append to a step journal as an event of the audit log.

The event names the last step of the append; its hash commits to all before it.
"""

import hashlib

import structlog

from bernstein_formats.audit_events import ReplayEvent, replay_event, step_details
from bernstein_formats.errors import BernsteinError
from bernstein_journal.macs import Macs
from bernstein_journal.step_log import AppendedSteps

log = structlog.get_logger()


class StepEvents:
    """Safe for any number of threads."""

    def __init__(self, macs: Macs) -> None:
        self._macs = macs

    def tell(self, agent_id: str, appended: AppendedSteps) -> None:
        """Never fails the append, whose step is stored; without an audit key there is no log."""
        last = appended.step_count - 1
        fields = replay_event(ReplayEvent.STEP, agent_id, step_details(last, appended.head_hash))
        # The same append told again after a crash is the same event.
        name = f"{agent_id} {last} {appended.head_hash}".encode()
        try:
            self._macs.append_audit(fields, f"step-{hashlib.sha256(name).hexdigest()[:48]}")
        except BernsteinError as error:
            log.info("step_not_audited", agent_id=agent_id, reason=error.reason)
