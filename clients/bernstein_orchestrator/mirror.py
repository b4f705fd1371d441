"""Provider-side mutations told to the audit log, each with the hash of its journal row."""

from collections.abc import Callable, Sequence

from bernstein_formats.audit_events import provider_state_mutation
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import Profile
from bernstein_formats.errors import BernsteinError
from bernstein_formats.event_journal import event_hash, payload_hash
from bernstein_formats.provider_state import MUTATION
from bernstein_orchestrator.events import Event


class Mirror:
    """Follows the rows of one run. An audit log that takes nothing is a warning, told once."""

    def __init__(
        self,
        run_id: str,
        append: Callable[[AuditFields], object],
        warn: Callable[[str], None],
    ) -> None:
        self._run_id = run_id
        self._append = append
        self._warn = warn
        self._index = 0
        self._head = ""
        self._is_refused = False

    def follow(self, events: Sequence[Event]) -> None:
        """Take rows that the journal has stored."""
        for event, payload in events:
            hashed = payload_hash(dict(payload), event, Profile.PY_JSON)
            self._head = event_hash(self._head, event, hashed, self._index, Profile.PY_JSON)
            self._index += 1
            if event == MUTATION and not self._is_refused:
                self._tell(dict(payload))

    def _tell(self, payload: dict[str, object]) -> None:
        fields = provider_state_mutation(
            run_id=self._run_id,
            agent_id=str(payload["agent_id"]),
            mutation_kind=str(payload["mutation_kind"]),
            content_address=str(payload["content_address"]),
            step_index=int(str(payload["step_index"])),
            flagged=bool(payload["flagged"]),
            journal_head=self._head,
        )
        try:
            self._append(fields)
        except BernsteinError as error:
            self._is_refused = True
            self._warn(f"provider-side changes are not in the audit log: {error.message}")
