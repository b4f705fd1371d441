"""What services count and measure for Prometheus: one table, which is also what docs are made from.

Nothing is counted, and the library is not loaded, until `enable` was called. A label has few values
for good: methods, reason words, never an id or a name that a caller chose.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from time import perf_counter
from typing import Any, Final

from bernstein_formats.errors import InvalidInput
from bernstein_runtime import VERSION, trace

# From a sync of a fast disk to a call that times out.
SECONDS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    60,
)
GRPC: Final = ("journal", "recorder", "rederiver", "signer")
ALL: Final = (*GRPC, "gateway", "proxy", "import")


class Kind(Enum):
    """How Prometheus takes it."""

    COUNTER = "Counter"
    GAUGE = "Gauge"
    HISTOGRAM = "Histogram"


@dataclass(slots=True)
class Metric:
    """One name. Safe for any number of threads; until it is made nothing is counted."""

    kind: Kind
    name: str
    help: str
    services: tuple[str, ...]
    labels: tuple[str, ...] = ()
    # The library's own object.
    made: Any = field(default=None, repr=False)

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count so many."""
        if self.made is not None and amount:
            self._child(labels).inc(amount)

    def set(self, value: float, *labels: str) -> None:
        """It is so many now."""
        if self.made is not None:
            self._child(labels).set(value)

    def observe(self, seconds: float, *labels: str) -> None:
        """Something took so long."""
        if self.made is not None:
            self._child(labels).observe(seconds)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Observe how long the block takes, if it does not fail."""
        began = perf_counter()
        yield
        self.observe(perf_counter() - began)

    def _child(self, labels: tuple[str, ...]) -> Any:
        return self.made.labels(*labels) if labels else self.made


BUILD = Metric(
    Kind.GAUGE, "bernstein_build_info", "1, with the version of the service.", ALL, ("version",)
)
READY = Metric(
    Kind.GAUGE, "bernstein_ready", "1 while it can do its work, else 0; see /readyz.", ALL
)
DISK_FREE_BYTES = Metric(
    Kind.GAUGE,
    "bernstein_disk_free_bytes",
    "Room that is left on the file system of the state folder.",
    ALL,
)
CERTIFICATE_EXPIRES = Metric(
    Kind.GAUGE,
    "bernstein_certificate_expires_seconds",
    "Unix time at which the certificate of [tls] ends; 0 without one.",
    ALL,
)
RPCS = Metric(
    Kind.COUNTER,
    "bernstein_rpcs_total",
    "Calls that ended, by the reason word of their error, OK without one.",
    GRPC,
    ("method", "reason"),
)
RPC_SECONDS = Metric(
    Kind.HISTOGRAM,
    "bernstein_rpc_seconds",
    "How long calls took, streams to their end.",
    GRPC,
    ("method",),
)
APPENDED_ROWS = Metric(
    Kind.COUNTER,
    "bernstein_appended_rows_total",
    "Rows of all logs that are durable: events, steps, spines, recorded calls.",
    ("journal", "recorder"),
)
APPENDED_BYTES = Metric(
    Kind.COUNTER, "bernstein_appended_bytes_total", "Bytes of those rows.", ("journal", "recorder")
)
STORE_SECONDS = Metric(
    Kind.HISTOGRAM,
    "bernstein_store_seconds",
    "How long a batch of rows took to be durable: a sync of a file, or a commit.",
    ("journal", "recorder"),
)
QUEUED_APPENDS = Metric(
    Kind.GAUGE, "bernstein_queued_appends", "Appends that wait for the writer.", ("journal",)
)
OPEN_FOLLOWERS = Metric(
    Kind.GAUGE, "bernstein_open_followers", "Streams that follow a run.", ("journal",)
)
PENDING_MACS = Metric(
    Kind.GAUGE,
    "bernstein_pending_macs",
    "Rows of spines and audit log that wait for the signer.",
    ("journal",),
)
SEALED_RUNS = Metric(Kind.COUNTER, "bernstein_sealed_runs_total", "Seals made.", ("signer",))
LEDGER_ENTRIES = Metric(
    Kind.GAUGE, "bernstein_ledger_entries", "Entries of the ledger.", ("signer",)
)
LEDGER_BYTES = Metric(Kind.GAUGE, "bernstein_ledger_bytes", "Size of the ledger.", ("signer",))
REPLAY_MISSES = Metric(
    Kind.COUNTER,
    "bernstein_replay_misses_total",
    "Requests that a recording could not answer.",
    ("recorder", "proxy"),
)
SCHEDULE_FINDINGS = Metric(
    Kind.COUNTER,
    "bernstein_schedule_findings_total",
    "Rows that the scheduler's rules refuse in runs that were re-derived, by known gap or rule.",
    ("rederiver",),
    ("reason",),
)
STORE_RETRIES = Metric(
    Kind.COUNTER,
    "bernstein_store_retries_total",
    "Lost connections to PostgreSQL, after which work was done again.",
    ("journal", "recorder"),
)
OPEN_LANES = Metric(Kind.GAUGE, "bernstein_open_lanes", "Lanes of agents.", ("proxy",))
EXCHANGES = Metric(
    Kind.COUNTER, "bernstein_exchanges_total", "Requests of agents that were recorded.", ("proxy",)
)
IMPORT_LOOKED = Metric(
    Kind.GAUGE,
    "bernstein_import_looked_at_seconds",
    "Unix time when all that was new in the source had been looked at and sent on; it stands still"
    " while the services are away.",
    ("import",),
)
IMPORT_FAILING = Metric(
    Kind.GAUGE,
    "bernstein_import_failing",
    "Runs and sessions of the source that could not be taken in when they were looked at last.",
    ("import",),
)
TABLE: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


@contextmanager
def appending(rows: bytes) -> Iterator[None]:
    """Count these rows once they are durable, and how long that took."""
    with trace.span("append to store", bytes=len(rows)), STORE_SECONDS.timing():
        yield
    APPENDED_ROWS.add(rows.count(b"\n"))
    APPENDED_BYTES.add(len(rows))


def enable(service: str) -> None:
    """Count from now on what `service` has to tell. Raises InvalidInput without the library."""
    if find_spec("prometheus_client") is None:
        raise InvalidInput(
            "[metrics] endpoint is set, and the package for it is not installed:"
            " install bernstein-services[metrics]"
        )
    import prometheus_client  # noqa: PLC0415 - takes long to load, and is rarely wanted

    # Three series where one is asked for.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    for metric in TABLE:
        if service in metric.services and metric.made is None:
            kind = getattr(prometheus_client, metric.kind.value)
            more = {"buckets": SECONDS} if metric.kind is Kind.HISTOGRAM else {}
            metric.made = kind(metric.name, metric.help, metric.labels, **more)
    BUILD.set(1, VERSION)
