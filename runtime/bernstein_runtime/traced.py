"""Whether a process tells spans, as `[tracing]` says; the library is loaded only then."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bernstein_formats.errors import InvalidInput
from bernstein_runtime import trace
from bernstein_runtime.config import TracingConfig, load_table


@contextmanager
def traced(
    service: str, state_dir: Path, environ: Mapping[str, str], failed: Callable[[str], None]
) -> Iterator[None]:
    """While it lasts spans are told, if they are to be. Raises InvalidInput, KeyUnusable."""
    config = load_table(TracingConfig, "tracing", state_dir, environ)
    if not config.endpoint:
        yield
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise InvalidInput(
            "[tracing] endpoint is set, and the packages for it are not installed:"
            " install bernstein-services[otel]"
        )
    from bernstein_runtime.tracing import spans_to  # noqa: PLC0415 - its extra may be absent

    spans = spans_to(config.endpoint, service, state_dir, environ, failed)
    trace.tell_spans(spans)
    try:
        yield
    finally:
        trace.tell_spans(None)
        spans.close()


@contextmanager
def traced_command(state_dir: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """The same for a command: it is one span, of which all that it causes are parts."""
    if not trace.is_command():
        yield
        return
    # Its output is the user's; that spans are lost is in the logs of services, which lose theirs.
    with traced("bernstein", state_dir, environ, lambda _: None), trace.command_span():
        yield
