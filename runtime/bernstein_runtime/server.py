"""serve(): one process, one gRPC server; health, reflection, stopping.

A server without calls in flight for long enough stops by itself; SIGTERM finishes what runs. Both
end the process with code 0.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bernstein_api.about.v1 import about_pb2_grpc
from bernstein_formats.errors import StoreFailed
from bernstein_runtime import limits
from bernstein_runtime.about import NAME as ABOUT
from bernstein_runtime.about import About
from bernstein_runtime.access import Access, NoRecords, Records
from bernstein_runtime.boundary import Activity, Boundary
from bernstein_runtime.readiness import Readiness
from bernstein_runtime.reread_file import RereadFile
from bernstein_runtime.role_table import RoleTable
from bernstein_runtime.tls import TlsFiles, listener_credentials

OPTIONS = [
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # Two servers on one port would both start and share the calls.
    ("grpc.so_reuseport", 0),
    # Callers ask with pings whether this host lives.
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
]
# Certificates are looked at when a connection is made: a new one is due after this time.
CONNECTION_AGE_OPTION = ("grpc.max_connection_age_ms", 600_000)
# How long calls in flight may take when the service stops.
STOP_GRACE_SECONDS = 5.0
TICK_SECONDS = 0.5
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Listener:
    """Where and how long to serve."""

    # The Unix socket, unless there is an endpoint.
    socket: Path
    idle_seconds: float
    # Callers must present it; empty: everybody who reaches the socket may call.
    token: bytes = b""
    # A pipe that ends with whoever started this process; None: it stands by itself.
    parent: int | None = None
    # Whether the state folder is still the one that this process has locked.
    holds_place: Callable[[], bool] = lambda: True
    # Where services of a fleet are reached, and with which certificate.
    address: str = ""
    tls: TlsFiles | None = None
    # Who may do what there, and the origin of calls that name none.
    roles: RereadFile[RoleTable] | None = None
    origin: str = ""
    readiness: Readiness = field(default_factory=Readiness)


def _no_records(_: str) -> AbstractContextManager[Records]:
    return nullcontext(NoRecords())


def serve(
    listener: Listener,
    register: Callable[[grpc.Server], str],
    *,
    check: Callable[[], None] = lambda: None,
    facts: Callable[[], Mapping[str, str]] = dict,
    busy: Callable[[], bool] = lambda: False,
    finish: Callable[[], None] = lambda: None,
    streams_max: int = 0,
    end_streams: Callable[[], None] = lambda: None,
    records: Callable[[str], AbstractContextManager[Records]] = _no_records,
) -> None:
    """Serve until SIGTERM, SIGINT, idleness or the loss of the state folder.

    `register` adds the servicer and names it. `check` raises what keeps it from its work: then its
    health is NOT_SERVING, while that of the process (no name) says whether it lives. `facts` is
    what else its operator is told.
    `busy` keeps an idle server alive; `finish` runs last, when no call is in flight any more.
    Streams without an end have threads beside the usual ones; `end_streams` ends them at a stop.
    `records`: whose runs those of an origin are, as long as they are needed.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if listener.parent is not None:
        watch = threading.Thread(target=_watch, args=(listener.parent, stopping), daemon=True)
        watch.start()
    activity = Activity()
    access, threads = None, limits.WORKER_THREADS
    if listener.roles is not None:
        access = Access(listener.roles, listener.origin, records)
        threads = limits.FLEET_WORKER_THREADS
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=threads + streams_max),
        interceptors=[Boundary(activity, listener.token, stopping, access)],
        options=[*OPTIONS, CONNECTION_AGE_OPTION] if listener.tls else OPTIONS,
    )
    name = register(server)
    about = About(name.split(".")[1], listener.readiness, listener.tls, facts)
    about_pb2_grpc.add_AboutServiceServicer_to_server(about, server)
    health_of = _add_standard_services(server, name)
    where = _bind(server, listener)
    server.start()
    log.info("serving", socket=where, tls=listener.tls is not None, pid=os.getpid())
    listener.readiness.watch(check)
    _tell(health_of, name, listener.readiness)
    while not stopping.wait(TICK_SECONDS):
        _tell(health_of, name, listener.readiness)
        if not listener.holds_place():
            log.error("displaced", error="the state folder was removed or replaced")
            stopping.set()
        elif activity.idle_seconds() >= listener.idle_seconds and not busy():
            stopping.set()
    log.info("stopping")
    listener.readiness.stop()
    health_of.enter_graceful_shutdown()
    end_streams()
    server.stop(grace=STOP_GRACE_SECONDS).wait()
    finish()


def _tell(health_of: health.HealthServicer, name: str, readiness: Readiness) -> None:
    status = health_pb2.HealthCheckResponse
    health_of.set(name, status.NOT_SERVING if readiness.refusal else status.SERVING)


def _watch(parent: int, stopping: threading.Event) -> None:
    # Not through a buffered reader: its lock would be held when the interpreter ends.
    while os.read(parent, 1):
        pass
    stopping.set()


def _add_standard_services(server: grpc.Server, name: str) -> health.HealthServicer:
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names: Sequence[str] = (name, ABOUT, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    return servicer


def _bind(server: grpc.Server, listener: Listener) -> str:
    """Where it listens then."""
    if not listener.address:
        _bind_socket(server, listener.socket)
        return str(listener.socket)
    try:
        if listener.tls is None:
            server.add_insecure_port(listener.address)
        else:
            server.add_secure_port(listener.address, listener_credentials(listener.tls))
    except RuntimeError as error:
        raise StoreFailed(
            f"nothing can listen at {listener.address}: another program does, or the address is not"
            " this host's; see [listen] endpoint"
        ) from error
    return listener.address


def _bind_socket(server: grpc.Server, socket: Path) -> None:
    # A second server would take the path over silently; callers of serve() hold a lock, so what
    # is here was left by a process that is dead.
    socket.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise StoreFailed(
            f"nothing can listen at {socket}; make its folder writable, or set XDG_RUNTIME_DIR",
            path=socket,
        ) from error
    finally:
        os.umask(before)
