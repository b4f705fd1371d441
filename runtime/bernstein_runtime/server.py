"""serve(): one process, one gRPC server; the boundary of every call, health, reflection, stopping.

The boundary is the only place where an error becomes a status, and where each call gets its one
log line. A server without calls in flight for long enough stops by itself; SIGTERM finishes what
runs. Both end the process with code 0.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bernstein_formats.errors import BernsteinError, NotAllowed, StoreFailed, Unavailable
from bernstein_runtime import limits, metrics, trace
from bernstein_runtime.call_facts import CallFacts
from bernstein_runtime.caller import Caller, caller_of
from bernstein_runtime.readiness import Readiness
from bernstein_runtime.status import DETAILS_KEY, code_of, details_of, printable
from bernstein_runtime.tls import TlsFiles, listener_credentials

CALLER_KEY = "bernstein-caller-bin"
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
# Generic in the stubs only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
log = structlog.get_logger()


@dataclass(slots=True)
class Activity:
    """How many calls are in flight and when the last one ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    in_flight: int = 0
    last: float = field(default_factory=time.monotonic)

    def began(self) -> None:
        with self.lock:
            self.in_flight += 1

    def ended(self) -> None:
        with self.lock:
            self.in_flight -= 1
            self.last = time.monotonic()

    def idle_seconds(self) -> float:
        with self.lock:
            return 0.0 if self.in_flight else time.monotonic() - self.last


class Boundary(grpc.ServerInterceptor):
    """Around every call: is the caller allowed, what came of it, how long did it take."""

    def __init__(self, activity: Activity, token: bytes, stopping: threading.Event) -> None:
        self._activity = activity
        self._token = token
        self._stopping = stopping

    def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Handler | None]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/bernstein_api."):
            return handler
        kind = ("stream" if handler.request_streaming else "unary") + (
            "_stream" if handler.response_streaming else "_unary"
        )
        behaviour = getattr(handler, kind)
        wrapped = self._streaming if handler.response_streaming else self._single
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made: Handler = make(
            wrapped(behaviour, method),
            handler.request_deserializer,
            handler.response_serializer,
        )
        return made

    def _single(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            facts = CallFacts(context)
            with self._around(method, context, facts):
                return behaviour(facts.of(request), context)

        return call

    def _streaming(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            facts = CallFacts(context)
            with self._around(method, context, facts):
                yield from behaviour(facts.of(request), context)

        return call

    @contextmanager
    def _around(
        self, method: str, context: grpc.ServicerContext, facts: CallFacts
    ) -> Iterator[None]:
        with (
            trace.serving(facts.trace, method.rsplit("/", 1)[-1], facts.said),
            self._logged(method, context, facts.said),
        ):
            caller = caller_of(method, context)
            facts.said |= {"caller": caller.name} if caller.name else {}
            self._admit(caller, context)
            yield

    @contextmanager
    def _logged(
        self, method: str, context: grpc.ServicerContext, said: dict[str, object]
    ) -> Iterator[None]:
        self._activity.began()
        began = time.monotonic()
        try:
            yield
        except BernsteinError as error:
            said["reason"] = error.reason
            context.set_trailing_metadata(((DETAILS_KEY, details_of(error)),))
            context.abort(code_of(error), printable(error.message))
        except Exception:
            said["reason"] = "INTERNAL"
            log.exception("bug", method=method)
            context.abort(grpc.StatusCode.INTERNAL, "internal error")
        finally:
            self._activity.ended()
            method = method.rsplit("/", 1)[-1]
            seconds = time.monotonic() - began
            metrics.RPCS.add(1, method, str(said.get("reason", "OK")))
            metrics.RPC_SECONDS.observe(seconds, method)
            log.info("rpc", method=method, ms=round(seconds * 1000, 1), **said)

    def _admit(self, caller: Caller, context: grpc.ServicerContext) -> None:
        """Raises NotAllowed, Unavailable. The one place where it is decided who may call what."""
        if self._stopping.is_set():
            raise Unavailable("the service is stopping; try again")
        if self._token and self._token not in {
            value for key, value in context.invocation_metadata() if key == CALLER_KEY
        }:
            raise NotAllowed("only the journal may call the signer")


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
    readiness: Readiness = field(default_factory=Readiness)


def serve(
    listener: Listener,
    register: Callable[[grpc.Server], str],
    *,
    check: Callable[[], None] = lambda: None,
    busy: Callable[[], bool] = lambda: False,
    finish: Callable[[], None] = lambda: None,
    streams_max: int = 0,
    end_streams: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM, SIGINT, idleness or the loss of the state folder.

    `register` adds the servicer and names it. `check` raises what keeps it from its work: then its
    health is NOT_SERVING, while that of the process (no name) says whether it lives.
    `busy` keeps an idle server alive; `finish` runs last, when no call is in flight any more.
    Streams without an end have threads beside the usual ones; `end_streams` ends them at a stop.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if listener.parent is not None:
        watch = threading.Thread(target=_watch, args=(listener.parent, stopping), daemon=True)
        watch.start()
    activity = Activity()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=limits.WORKER_THREADS + streams_max),
        interceptors=[Boundary(activity, listener.token, stopping)],
        options=[*OPTIONS, CONNECTION_AGE_OPTION] if listener.tls else OPTIONS,
    )
    name = register(server)
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
    names: Sequence[str] = (name, health.SERVICE_NAME, reflection.SERVICE_NAME)
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
