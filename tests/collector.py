"""An OpenTelemetry collector in this process, for tests: it keeps what it is told."""

from concurrent import futures
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Told:
    """A span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str]


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """OTLP over gRPC on loopback."""

    def __init__(self) -> None:
        self.spans: list[Told] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - as in OTLP
        for group in request.resource_spans:
            service = _attributes(group.resource.attributes)["service.name"]
            self.spans += [
                Told(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _attributes(span.attributes),
                )
                for scope in group.scope_spans
                for span in scope.spans
            ]
        return trace_service_pb2.ExportTraceServiceResponse()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()


def _attributes(pairs: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in pairs}
