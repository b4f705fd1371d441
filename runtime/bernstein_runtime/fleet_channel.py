"""The connection to one service of a fleet: to the first host that answers, with the newest
certificate.

Calls in flight stay where they began; the next ones go where the service answers now.
"""

import threading
from typing import Final

import grpc

from bernstein_formats.errors import BernsteinError, Unavailable, Untrusted
from bernstein_runtime import forked
from bernstein_runtime.channel import Target
from bernstein_runtime.fleet import Fleet
from bernstein_runtime.tls import Renewing
from bernstein_runtime.unreachable import Place, why_unreachable

# A host that froze takes connections and says nothing; it is left after so long.
CONNECT_SECONDS: Final = 3.0
_NO_ANSWER: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class FleetLink:
    """The connection behind such channels, one a service and process. Thread-safe."""

    def __init__(self, fleet: Fleet, service: str) -> None:
        """Connects at the first `reach`. Raises KeyUnusable."""
        self._fleet = fleet
        self._service = service
        self._renewing = Renewing(fleet.tls) if fleet.tls else None
        self._lock = threading.RLock()
        self._index = 0
        self._target: Target | None = None
        self._channel: grpc.Channel | None = None
        # Let go of, for calls that are still in flight there.
        self._former: grpc.Channel | None = None
        # A parent's; to take them apart is not for its child.
        self._left: list[grpc.Channel | None] = []
        forked.renew_after_fork(self)

    def after_fork(self) -> None:
        """Begin anew in the child."""
        self._lock = threading.RLock()
        self._left += [self._channel, self._former]
        self._channel = self._former = None

    def reach(self) -> None:
        """Have a host that answers, another one if need be. Raises Unavailable, Untrusted."""
        silent: list[Place] = []
        with self._lock:
            for _ in self._fleet.endpoints:
                if _answers(self.channel()):
                    return
                silent.append(Place(self._service, self._fleet.endpoints[self._index]))
                self._index = (self._index + 1) % len(self._fleet.endpoints)
        raise _summed([why_unreachable(place, self._fleet.tls) for place in silent])

    def target(self) -> Target:
        """Where new calls go."""
        if self._renewing is not None:
            self._renewing.renewed()
        address = self._fleet.endpoints[self._index].address(self._service)
        return Target(address, self._renewing.identity if self._renewing else None)

    def channel(self) -> grpc.Channel:
        """A channel to the target."""
        with self._lock:
            target = self.target()
            if target != self._target or self._channel is None:
                if self._former is not None:
                    self._former.close()
                forked.check_usable()
                self._former, self._channel = self._channel, target.open()
                self._target = target
            return self._channel

    def close(self) -> None:
        """End all calls."""
        with self._lock:
            for each in (self._channel, self._former):
                if each is not None:
                    each.close()
            self._channel = self._former = None


def _answers(channel: grpc.Channel) -> bool:
    """Whether somebody is there who speaks gRPC; connects first, if need be."""
    # HealthCheckRequest and its answer are passed as bytes, which nobody reads.
    ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        "/grpc.health.v1.Health/Check"
    )
    answer = ask.future(b"", timeout=CONNECT_SECONDS)
    return answer.exception() is None or answer.code() not in _NO_ANSWER


def _summed(problems: list[BernsteinError]) -> BernsteinError:
    """One error for all hosts; what no waiting mends only where that holds for each of them."""
    if len(problems) == 1:
        return problems[0]
    texts = "; ".join(problem.message for problem in problems)
    lasting = all(isinstance(each, Untrusted) for each in problems)
    return Untrusted(texts) if lasting else Unavailable(texts)
