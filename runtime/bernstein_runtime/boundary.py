"""The boundary of every call, the only place where an error becomes a status, and where each call
gets its one log line and is allowed or not.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import structlog

from bernstein_formats.errors import BernsteinError, InvalidInput, NotAllowed, Unavailable
from bernstein_runtime import metrics, trace
from bernstein_runtime.access import Access, Admitted
from bernstein_runtime.call_facts import CallFacts
from bernstein_runtime.caller import CALLER_KEY, caller_of
from bernstein_runtime.status import DETAILS_KEY, code_of, details_of, printable

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

    def __init__(
        self, activity: Activity, token: bytes, stopping: threading.Event, access: Access | None
    ) -> None:
        """`access`: None where callers have no names, behind a socket or on loopback."""
        self._activity = activity
        self._token = token
        self._stopping = stopping
        self._access = access

    def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Handler | None]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/bernstein_api."):
            return handler
        streams_in, streams_out = handler.request_streaming, handler.response_streaming
        kind = ("stream" if streams_in else "unary") + ("_stream" if streams_out else "_unary")
        behaviour = getattr(handler, kind)
        if self._access is not None and not streams_in:
            # A request is waited for by a thread: its caller is to be admitted before that.
            behaviour, streams_in = _of_first(behaviour), True
            kind = kind.replace("unary", "stream", 1)
        wrapped = self._streaming if streams_out else self._single
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
            with self._around(method, context, facts, is_stream=False) as admitted:
                request = facts.of(request)
                if admitted is None:
                    return behaviour(request, context)
                return admitted.done(behaviour(admitted.of(request), context))

        return call

    def _streaming(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            facts = CallFacts(context)
            with self._around(method, context, facts, is_stream=True) as admitted:
                request = facts.of(request)
                if admitted is None:
                    yield from behaviour(request, context)
                    return
                for answer in behaviour(admitted.of(request), context):
                    admitted.check_still()
                    yield answer

        return call

    @contextmanager
    def _around(
        self, method: str, context: grpc.ServicerContext, facts: CallFacts, *, is_stream: bool
    ) -> Iterator[Admitted | None]:
        with (
            trace.serving(facts.trace, method.rsplit("/", 1)[-1], facts.said),
            self._logged(method, context, facts.said),
            ExitStack() as held,
        ):
            caller = caller_of(method, context)
            facts.said |= {"caller": caller.name} if caller.name else {}
            self._admit(context)
            if self._access is None:
                yield None
            else:
                yield held.enter_context(self._access.admitted(caller, is_stream=is_stream))

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

    def _admit(self, context: grpc.ServicerContext) -> None:
        """Raises NotAllowed, Unavailable."""
        if self._stopping.is_set():
            raise Unavailable("the service is stopping; try again")
        if self._token and self._token not in {
            value for key, value in context.invocation_metadata() if key == CALLER_KEY
        }:
            raise NotAllowed("only the journal may call the signer")


def _of_first(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a stream of one request."""

    def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        request = next(requests, None)
        if request is None:
            raise InvalidInput("the call has no request; send one message")
        return behaviour(request, context)

    return call
