"""Lineage spines and the audit log, as programs see them; their MACs are the signer's."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import spelled
from bernstein_formats.spine import SpineFields
from bernstein_runtime import limits

if TYPE_CHECKING:
    from bernstein_client.service_channel import ServiceChannel


@dataclass(frozen=True, slots=True)
class SpineVerified:
    """A spine's verdict: "ok", "no_entries", "seal_only" or "tampered"."""

    status: str
    entry_count: int
    sealed_head: str | None
    errors: tuple[str, ...]
    head_hash: str
    # Entries that wait for the signer.
    waiting_count: int


@dataclass(frozen=True, slots=True)
class AuditVerified:
    """How far the audit log verifies; `error` says what ended that, if anything did."""

    event_count: int
    error: str
    waiting_count: int


class MacsClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: "ServiceChannel") -> None:
        self._connection = connection
        self._stub = journal_pb2_grpc.JournalServiceStub(connection.channel)

    def append_spine_entry(self, run_id: str, fields: SpineFields) -> str | None:
        """The entry's hash once it is durable; None while it waits, durably, for the signer.

        Raises KeyUnusable where the project has no audit key.
        """
        request = journal_pb2.AppendSpineEntryRequest(
            run_id=run_id,
            request_id=self._connection.request_id(),
            entry=journal_pb2.SpineEntry(**asdict(fields)),
        )
        answer = self._connection.call(self._stub.AppendSpineEntry, request, "AppendSpineEntry")
        return answer.entry_hash or None

    def append_audit_event(self, fields: AuditFields) -> str | None:
        """The event's HMAC once it is durable; None and KeyUnusable likewise."""
        request = journal_pb2.AppendAuditEventRequest(
            request_id=self._connection.request_id(),
            event_type=fields.event_type,
            actor=fields.actor,
            resource_type=fields.resource_type,
            resource_id=fields.resource_id,
            details_json=spelled(dict(fields.details)).encode(),
            is_anchored=fields.is_anchored,
        )
        answer = self._connection.call(self._stub.AppendAuditEvent, request, "AppendAuditEvent")
        return answer.hmac or None

    def verify_spine(self, run_id: str) -> SpineVerified:
        """Chain and MACs. Raises KeyUnusable."""
        request = journal_pb2.VerifySpineRequest(run_id=run_id)
        found = self._connection.call(
            self._stub.VerifySpine, request, "VerifySpine", limits.LONG_CALL_TIMEOUT_SECONDS
        )
        return SpineVerified(
            status=found.status,
            entry_count=found.entry_count,
            sealed_head=found.sealed_head if found.HasField("sealed_head") else None,
            errors=tuple(found.errors),
            head_hash=found.head_hash,
            waiting_count=found.waiting_count,
        )

    def verify_audit_log(self) -> AuditVerified:
        """All segments, archived ones too. Raises KeyUnusable."""
        found = self._connection.call(
            self._stub.VerifyAuditLog,
            journal_pb2.VerifyAuditLogRequest(),
            "VerifyAuditLog",
            limits.LONG_CALL_TIMEOUT_SECONDS,
        )
        return AuditVerified(found.event_count, found.error, found.waiting_count)
