"""RederiverService: unpack, call, pack."""

from collections.abc import Iterator
from typing import TypeAlias

import grpc

from bernstein_api.rederiver.v1 import rederiver_pb2, rederiver_pb2_grpc
from bernstein_formats.journal_reader import counted
from bernstein_formats.recording_gaps import ScheduleFinding, schedule_findings
from bernstein_formats.rederivation import UNDERIVABLE_STEP, Rederivation, rederive
from bernstein_rederiver.journal import Journal
from bernstein_runtime import metrics
from bernstein_runtime.progress import Done, Report, with_progress

_Found: TypeAlias = tuple[Rederivation, tuple[ScheduleFinding, ...]]


class RederiverService(rederiver_pb2_grpc.RederiverServiceServicer):
    """Each method is one call of the contract, described there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def RederiveRun(
        self, request: rederiver_pb2.RederiveRunRequest, context: grpc.ServicerContext
    ) -> Iterator[rederiver_pb2.RederiveRunResponse]:
        run_id, chunks = self._journal.read(request.run_id)

        def work(report: Report) -> _Found:
            answer = rederive(counted(chunks, lambda done: report(done, 0)), run_id)
            if answer.reason_code != UNDERIVABLE_STEP:
                return answer, ()
            findings = schedule_findings(self._journal.read(run_id)[1])
            for each in findings:
                metrics.SCHEDULE_FINDINGS.add(1, each.reason)
            return answer, findings

        for item in with_progress(work):
            if isinstance(item, Done):
                yield rederiver_pb2.RederiveRunResponse(done_bytes=item.done_bytes)
            else:
                yield rederiver_pb2.RederiveRunResponse(rederivation=_packed(*item.value))


def _packed(
    found: Rederivation, findings: tuple[ScheduleFinding, ...]
) -> rederiver_pb2.Rederivation:
    return rederiver_pb2.Rederivation(
        ok=found.ok,
        run_id=found.run_id,
        recorded_head=found.recorded_head,
        derived_head=found.derived_head,
        step_count=found.step_count,
        step_index=found.step_index,
        reason=found.reason,
        reason_code=found.reason_code,
        rule=found.rule,
        notes=[f"row {note.index}: stored {note.member} is not its own" for note in found.notes],
        findings=[rederiver_pb2.Finding(reason=each.reason, index=each.index) for each in findings],
    )
