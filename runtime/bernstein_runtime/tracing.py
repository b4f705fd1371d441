"""Spans to an OpenTelemetry collector, where `[tracing] endpoint` names one.

They tell of methods, ids, sizes and reason words; never of a payload, an address with a query, or a
key. Loaded only where it is set. Nothing global of the library is touched, since the program around
us may use it, too.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from bernstein_formats.errors import InvalidInput
from bernstein_runtime import VERSION
from bernstein_runtime.endpoint import is_loopback, parse_endpoint
from bernstein_runtime.tls import tls_files
from bernstein_runtime.trace import Kind, Trace

BASE_PORT: Final = 4317
EXPORT_SECONDS: Final = 5
KINDS: Final = {
    "internal": api.SpanKind.INTERNAL,
    "server": api.SpanKind.SERVER,
    "client": api.SpanKind.CLIENT,
}


class OtelSpan:
    """See `bernstein_runtime.trace.Span`."""

    def __init__(self, span: api.Span) -> None:
        context = span.get_span_context()
        self._span = span
        self.trace = Trace(f"{context.trace_id:032x}", f"{context.span_id:016x}")

    def say(self, facts: Mapping[str, object]) -> None:
        for name, value in facts.items():
            if name == "reason":
                self._span.set_attribute("error.type", str(value))
                self._span.set_status(api.StatusCode.ERROR, str(value))
            else:
                self._span.set_attribute(f"bernstein.{name}", str(value))


class OtelSpans:
    """See `bernstein_runtime.trace.Spans`."""

    def __init__(self, service: str, exporter: OTLPSpanExporter) -> None:
        resource = Resource.create({"service.name": service, "service.version": VERSION})
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("bernstein", VERSION)

    @contextmanager
    def span(self, name: str, kind: Kind, parent: Trace | None) -> Iterator[OtelSpan]:
        made = self._tracer.start_span(name, context=_context(parent), kind=KINDS[kind])
        try:
            yield OtelSpan(made)
        finally:
            made.end()

    def close(self) -> None:
        """Send what waits; takes seconds at most when nobody is there."""
        self._provider.shutdown()


class _Failures(logging.Handler):
    """What the library complains about."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record.getMessage())


def spans_to(
    collector: str,
    service: str,
    state_dir: Path,
    environ: Mapping[str, str],
    failed: Callable[[str], None],
) -> OtelSpans:
    """Spans of `service` to `host[:port]`, OTLP over gRPC; `failed` hears why some are lost.

    A collector on another host is told with the certificate of [tls] only. Raises InvalidInput,
    KeyUnusable.
    """
    endpoint = parse_endpoint(collector, "[tracing] endpoint", BASE_PORT)
    credentials: grpc.ChannelCredentials | None = None
    if not is_loopback(endpoint.host):
        files = tls_files(state_dir, environ)
        if files is None:
            raise InvalidInput(
                f"[tracing] endpoint {collector!r} is another host; set [tls], or send to a"
                " collector on 127.0.0.1"
            )
        credentials = files.read().for_channel()
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.addHandler(_Failures(failed))
    exporter = OTLPSpanExporter(
        endpoint=endpoint.address("journal"),
        insecure=credentials is None,
        credentials=credentials,
        timeout=EXPORT_SECONDS,
    )
    return OtelSpans(service, exporter)


def _context(parent: Trace | None) -> Context:
    if parent is None:
        return Context()
    known = api.SpanContext(
        int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True,
        trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
    )  # fmt: skip
    return api.set_span_in_context(api.NonRecordingSpan(known), Context())
