"""The calls of SignerService about rows that carry a MAC: unpack, call, pack."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import groupby

import grpc

from bernstein_api.signer.v1 import signer_pb2 as pb
from bernstein_api.signer.v1 import signer_pb2_grpc as grpc_pb
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import InvalidInput
from bernstein_formats.journal_reader import bounded
from bernstein_formats.mac import MacKeys
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.spine import SpineFields
from bernstein_formats.spine_verify import verify_spine
from bernstein_signer.mac_rows import make_audit_row, make_spine_row, verified_log
from bernstein_signer.streams import check_still_there, parts_of


class MacCalls(grpc_pb.SignerServiceServicer):
    """A part of the service; whoever inherits it sets `_mac_keys`."""

    _mac_keys: Callable[[], MacKeys]

    def _admit_mac(self, context: grpc.ServicerContext) -> None:
        """Raises NotAllowed where this caller's origin may have no MAC made."""

    def MacSpineEntry(
        self, request: pb.MacSpineEntryRequest, context: grpc.ServicerContext
    ) -> pb.MacSpineEntryResponse:
        """See the .proto."""
        self._admit_mac(context)
        fields = _spine_fields(request.entry)
        made = make_spine_row(request.previous_line, request.entry_count, fields, self._mac_keys())
        return pb.MacSpineEntryResponse(line=made.line, head_json=made.head_json)

    def MacAuditEvent(
        self, request: pb.MacAuditEventRequest, context: grpc.ServicerContext
    ) -> pb.MacAuditEventResponse:
        """See the .proto."""
        self._admit_mac(context)
        fields = _audit_fields(request.event)
        line = make_audit_row(request.previous_line, request.timestamp, fields, self._mac_keys())
        return pb.MacAuditEventResponse(line=line)

    def VerifySpine(
        self, request_iterator: Iterator[pb.VerifySpineRequest], context: grpc.ServicerContext
    ) -> pb.VerifySpineResponse:
        """See the .proto."""
        keys = self._mac_keys()
        found = verify_spine(bounded(part.data for part in parts_of(request_iterator)), keys)
        check_still_there(context)
        return pb.VerifySpineResponse(
            status=found.status,
            entry_count=found.count,
            sealed_head=found.sealed_head,
            errors=found.errors,
            head_hash=found.head_hash,
        )

    def VerifyAuditLog(
        self, request_iterator: Iterator[pb.VerifyAuditLogRequest], context: grpc.ServicerContext
    ) -> pb.VerifyAuditLogResponse:
        """See the .proto."""
        parts = parts_of(request_iterator)
        first = next(parts, pb.VerifyAuditLogRequest())
        if first.WhichOneof("part") != "run_id":
            raise InvalidInput("the first message of VerifyAuditLog must name the run")
        segments = (
            (name, bounded(part.audit.data for part in group))
            for name, group in groupby(parts, lambda part: part.audit.segment)
        )
        found = verified_log(segments, first.run_id, self._mac_keys())
        check_still_there(context)
        return pb.VerifyAuditLogResponse(
            event_count=found.event_count,
            error=found.error,
            seals=[pb.JournalSeal(**asdict(seal)) for seal in found.seals],
        )


def _spine_fields(entry: pb.SpineEntry) -> SpineFields:
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


def _audit_fields(event: pb.AuditEvent) -> AuditFields:
    return AuditFields(
        event_type=event.event_type,
        actor=event.actor,
        resource_type=event.resource_type,
        resource_id=event.resource_id,
        details=read_object(event.details_json),
        is_anchored=event.is_anchored,
    )
