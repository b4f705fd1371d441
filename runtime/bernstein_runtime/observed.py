"""Whether a process shows what it counts, as `[metrics]` says; the library is loaded only then."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from bernstein_runtime import metrics
from bernstein_runtime.config import MetricsConfig, load_table
from bernstein_runtime.endpoint import parse_endpoint
from bernstein_runtime.places import Places
from bernstein_runtime.readiness import Readiness

BASE_PORT: Final = 7441


def observed(
    name: str, readiness: Readiness, places: Places, environ: Mapping[str, str]
) -> AbstractContextManager[None]:
    """While it lasts Prometheus and probes find what they were promised. Raises InvalidInput."""
    config = load_table(MetricsConfig, "metrics", places.state_dir, environ)
    if not config.endpoint:
        return nullcontext()
    endpoint = parse_endpoint(config.endpoint, "[metrics] endpoint", BASE_PORT)
    metrics.enable(name)
    from bernstein_runtime.observation import pages  # noqa: PLC0415 - needs what may be absent

    return pages(endpoint, name, readiness, places, environ)
