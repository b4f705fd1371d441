"""The rederiver, as programs see it."""

from collections.abc import Callable

from bernstein_api.rederiver.v1 import rederiver_pb2, rederiver_pb2_grpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_client.values import Finding, Rederived


class RederiverClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = rederiver_pb2_grpc.RederiverServiceStub(connection.channel)

    def rederive_run(
        self, run_id: str, progress: Callable[[int], None] = lambda _: None
    ) -> Rederived:
        """Raises RunNotFound; a run that does not re-derive is an answer."""
        request = rederiver_pb2.RederiveRunRequest(run_id=run_id)
        for item in self._connection.stream(self._stub.RederiveRun, request):
            if item.HasField("rederivation"):
                return _unpacked(item.rederivation)
            progress(item.done_bytes)
        raise AssertionError("the answer is the last message")


def _unpacked(found: rederiver_pb2.Rederivation) -> Rederived:
    return Rederived(
        ok=found.ok,
        run_id=found.run_id,
        recorded_head=found.recorded_head,
        derived_head=found.derived_head,
        step_count=found.step_count,
        step_index=found.step_index if found.HasField("step_index") else None,
        reason=found.reason,
        reason_code=found.reason_code,
        rule=found.rule,
        notes=tuple(found.notes),
        findings=tuple(Finding(each.reason, each.index, "task_id") for each in found.findings),
    )
