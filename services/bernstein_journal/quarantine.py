"""What a caller changed, and the fence around it: for a certificate that somebody stole."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from bernstein_formats.audit_events import caller_fenced, fence_lifted
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import BernsteinError, NotFound
from bernstein_formats.instants import MICROSECONDS, parse_bound
from bernstein_journal.macs import Macs
from bernstein_runtime.clock import Clock
from bernstein_runtime.fences import Fence
from bernstein_runtime.targets import Target
from bernstein_store.run_records import LOOK_SECONDS, RunRecords

# Seconds; instants are counted from the first year on, clocks from 1970 on.
_YEAR_1_TO_1970: Final = 719_162 * 86_400
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Changed:
    """A run or session that a caller changed, and when: to the hour."""

    target: Target
    first_at: float
    last_at: float
    methods: tuple[str, ...]
    is_own: bool


class Quarantine:
    """Of one origin."""

    def __init__(self, records: RunRecords, macs: Macs, clock: Clock) -> None:
        self._records = records
        self._macs = macs
        self._clock = clock

    def changed(self, caller: str, since: str) -> list[Changed]:
        """By whom and since when. Raises InvalidInput for what is no instant."""
        began = max(parse_bound(since) / MICROSECONDS - _YEAR_1_TO_1970, 0.0)
        touches: dict[Target, list[tuple[float, str]]] = {}
        for touch in self._records.touches(caller, began):
            touches.setdefault(touch.target, []).append((touch.at, touch.method))
        found = [
            Changed(
                target,
                min(at for at, _ in each),
                max(at for at, _ in each),
                tuple(sorted({method for _, method in each})),
                not target.is_all and self._records.owner(target) == caller,
            )
            for target, each in touches.items()
        ]
        return sorted(found, key=lambda each: (each.first_at, str(each.target)))

    def is_fenced(self, caller: str) -> bool:
        return self._records.fences().of_caller(caller) is not None

    def fence(self, caller: str, since: str, by: str, request_id: str) -> list[Changed]:
        """Refuse its calls, then find what it changed, then see to that."""
        parse_bound(since)
        now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)

        def put_up(targets: frozenset[Target]) -> None:
            self._records.put_up(Fence(caller, since, f"{now:%Y-%m-%dT%H:%M:%SZ}", by, targets))

        before = self._records.fences().of_caller(caller)
        put_up(before.targets if before else frozenset())
        # Until every process has seen it the caller may change more.
        time.sleep(LOOK_SECONDS)
        found = self.changed(caller, since)
        put_up(frozenset(each.target for each in found if not each.target.is_all))
        self._tell(lambda: caller_fenced(caller, since, by, len(found)), request_id)
        return found

    def lift(self, caller: str, by: str, request_id: str) -> None:
        """Raises NotFound."""
        fence = self._records.take_down(caller)
        if fence is None:
            raise NotFound(f"{caller} is not in quarantine; see how the certificate spells it")
        self._tell(lambda: fence_lifted(caller, fence.since, by), request_id)

    def _tell(self, fields: Callable[[], AuditFields], request_id: str) -> None:
        """Without an audit key there is no audit log; the fence stands in any case."""
        try:
            self._macs.append_audit(fields(), request_id)
        except BernsteinError as error:
            log.warning("quarantine_not_audited", reason=error.reason, error=error.message)
