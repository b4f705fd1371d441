"""The calls of JournalService about step journals: unpack, call, pack."""

from collections.abc import Iterator
from itertools import chain

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_formats.session_journal import parse_step
from bernstein_journal.requests import check_request_id
from bernstein_journal.step_events import StepEvents
from bernstein_journal.step_log import AppendSteps
from bernstein_journal.steps import StepJournals
from bernstein_journal.verbatim import Piece, VerbatimLogs
from bernstein_runtime import limits


class StepCalls(journal_pb2_grpc.JournalServiceServicer):
    """A part of the service; whoever inherits it sets these."""

    _steps: StepJournals
    _step_events: StepEvents
    _verbatim: VerbatimLogs

    def AppendSteps(
        self, request: journal_pb2.AppendStepsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendStepsResponse:
        check_request_id(request.request_id)
        if not 1 <= len(request.steps_json) <= limits.BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"{len(request.steps_json)} steps; a request takes 1 to {limits.BATCH_EVENTS_MAX}"
            )
        appended = self._steps.append(
            AppendSteps(
                agent_id=request.agent_id,
                steps=list(map(parse_step, request.steps_json)),
                request_id=request.request_id,
                expected_head=request.expected_head_hash.hex()
                if request.HasField("expected_head_hash")
                else None,
                start=request.start,
            )
        )
        self._step_events.tell(request.agent_id, appended)
        return journal_pb2.AppendStepsResponse(
            first_seq=appended.first_seq,
            head_hash=bytes.fromhex(appended.head_hash),
            step_count=appended.step_count,
        )

    def AppendStepRows(
        self, request: journal_pb2.AppendStepRowsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendStepRowsResponse:
        size = self._verbatim.append_steps(request.agent_id, piece_of(request))
        return journal_pb2.AppendStepRowsResponse(size_bytes=size)

    def ImportBlob(
        self,
        request_iterator: Iterator[journal_pb2.ImportBlobRequest],
        context: grpc.ServicerContext,
    ) -> journal_pb2.ImportBlobResponse:
        first = next(request_iterator, None)
        if first is None:
            raise InvalidInput("an empty stream names no blob", field="digest")
        parts = (each.data for each in chain([first], request_iterator))
        is_new = self._steps.take_in_blob(first.agent_id, first.digest, parts)
        return journal_pb2.ImportBlobResponse(is_new=is_new)

    def ReadSteps(
        self, request: journal_pb2.ReadStepsRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.ReadStepsResponse]:
        for chunk in self._steps.read(request.agent_id, request.start_offset):
            yield journal_pb2.ReadStepsResponse(data=chunk)


def piece_of(request: journal_pb2.AppendRowsRequest | journal_pb2.AppendStepRowsRequest) -> Piece:
    """What an importer sends, as a value."""
    prefix = request.prefix_sha256 if request.HasField("prefix_sha256") else None
    return Piece(request.data, request.start_offset, prefix)
