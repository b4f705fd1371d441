"""The one way from the orchestrator to the journal: no row that would not re-derive."""

from collections.abc import Sequence

from bernstein_formats.errors import JournalError
from bernstein_formats.schedule_rules import ScheduleRules
from bernstein_orchestrator.events import Event
from bernstein_orchestrator.mirror import Mirror
from bernstein_orchestrator.ports import Journal


class Ledger:
    """Appends the events of one run, each batch whole or not at all."""

    def __init__(self, journal: Journal, run_id: str, mirror: Mirror | None = None) -> None:
        """Begin with an empty journal; `mirror` hears what was stored."""
        self._mirror = mirror
        self._journal = journal
        self._run_id = run_id
        self._rules = ScheduleRules()
        self.head = ""

    def append(self, events: Sequence[Event]) -> None:
        """Append durably; JournalError before anything is sent if an event breaks the rules."""
        for event, payload in events:
            refusal = self._rules.advance(event, payload)
            if refusal is not None:
                raise JournalError(
                    f"run {self._run_id}: {refusal.text()}; this is a fault of the orchestrator,"
                    " and nothing was written",
                    run_id=self._run_id,
                    rule=refusal.rule,
                )
        self.head = self._journal.append_many(self._run_id, events).head_hash_hex
        if self._mirror is not None:
            self._mirror.follow(events)
