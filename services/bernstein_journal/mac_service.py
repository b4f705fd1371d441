"""The calls of JournalService about rows that carry a MAC: unpack, call, pack."""

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_formats import paths
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.spine import SpineFields
from bernstein_journal.macs import Macs
from bernstein_journal.requests import check_request_id


class MacCalls(journal_pb2_grpc.JournalServiceServicer):
    """A part of the service; whoever inherits it sets `_macs`."""

    _macs: Macs

    def AppendSpineEntry(
        self, request: journal_pb2.AppendSpineEntryRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendSpineEntryResponse:
        check_request_id(request.request_id)
        paths.check_run_id(request.run_id)
        fields = _spine_fields(request.entry)
        made = self._macs.append_spine(request.run_id, fields, request.request_id)
        return journal_pb2.AppendSpineEntryResponse(entry_hash=made or "")

    def AppendAuditEvent(
        self, request: journal_pb2.AppendAuditEventRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendAuditEventResponse:
        check_request_id(request.request_id)
        fields = AuditFields(
            event_type=request.event_type,
            actor=request.actor,
            resource_type=request.resource_type,
            resource_id=request.resource_id,
            details=read_object(request.details_json),
            is_anchored=request.is_anchored,
        )
        made = self._macs.append_audit(fields, request.request_id)
        return journal_pb2.AppendAuditEventResponse(hmac=made or "")

    def VerifySpine(
        self, request: journal_pb2.VerifySpineRequest, context: grpc.ServicerContext
    ) -> journal_pb2.VerifySpineResponse:
        found, waiting_count = self._macs.verify_spine(request.run_id)
        return journal_pb2.VerifySpineResponse(
            status=found.status,
            entry_count=found.entry_count,
            sealed_head=found.sealed_head,
            errors=found.errors,
            head_hash=found.head_hash,
            waiting_count=waiting_count,
        )

    def VerifyAuditLog(
        self, request: journal_pb2.VerifyAuditLogRequest, context: grpc.ServicerContext
    ) -> journal_pb2.VerifyAuditLogResponse:
        found, waiting_count = self._macs.verify_audit_log()
        return journal_pb2.VerifyAuditLogResponse(
            event_count=found.event_count, error=found.error, waiting_count=waiting_count
        )


def _spine_fields(entry: journal_pb2.SpineEntry) -> SpineFields:
    return SpineFields(
        artifact_path=entry.artifact_path,
        content_hash=entry.content_hash,
        actor=entry.actor,
        step_id=entry.step_id,
        model=entry.model,
        timestamp=entry.timestamp,
        traceparent=entry.traceparent if entry.HasField("traceparent") else None,
        tracestate=entry.tracestate if entry.HasField("tracestate") else None,
        baggage=entry.baggage if entry.HasField("baggage") else None,
    )
