"""One process, many origins: each has servicers of its own, made when they are first asked for.

A call is handed to those of the origin that it names. Servicers know nothing of origins. Those that
nobody has used for longest are closed when there are many.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
import structlog

from bernstein_runtime.caller import origin_of_call

OPEN_MAX: Final = 256
log = structlog.get_logger()


class Wiring(Protocol):
    """What serves one origin."""

    @property
    def servicer(self) -> Any:
        """Of the class that gRPC's stubs give."""
        ...

    def check(self) -> None:
        """Raise what keeps it from storing anything."""
        ...

    def busy(self) -> bool:
        """Whether it keeps something that a caller comes back for."""
        ...

    def end_streams(self) -> None:
        """End the streams that have no end of their own."""
        ...

    def close(self) -> None:
        """Let go of everything; no call is in flight any more."""
        ...


Wired = TypeVar("Wired", bound=Wiring)


@dataclass(slots=True)
class _Place(Generic[Wired]):
    """One origin's wiring once it is made; its lock is held while it is being made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    wiring: Wired | None = None
    users: int = 0


class PerOrigin(Generic[Wired]):
    """Thread-safe."""

    def __init__(self, own: str, wire: Callable[[str], Wired]) -> None:
        """`own` is the origin of calls that name none. Its wiring is made now, so that a service
        that cannot serve does not start. Raises what `wire` raises."""
        self._own = own
        self._wire = wire
        self._lock = threading.Lock()
        self._places: OrderedDict[str, _Place[Wired]] = OrderedDict()
        with self.using(own):
            pass

    @property
    def servicer(self) -> Any:
        """One for the server: it hands each call on."""
        return _Handing(self)

    @contextmanager
    def using(self, origin: str) -> Iterator[Wired]:
        """An origin's wiring, which stays open meanwhile; an empty name is our own."""
        origin = origin or self._own
        with self._lock:
            place = self._places.setdefault(origin, _Place())
            self._places.move_to_end(origin)
            place.users += 1
        try:
            with place.lock:
                if place.wiring is None:
                    place.wiring = self._wire(origin)
                    if origin != self._own:
                        log.info("origin_opened", origin=origin)
            yield place.wiring
        finally:
            with self._lock:
                place.users -= 1
                ended = self._without_use()
            for each in ended:
                each.close()

    def check(self) -> None:
        """Of our own; it stands for the others."""
        with self.using("") as wiring:
            wiring.check()

    def busy(self) -> bool:
        return any(wiring.busy() for wiring in self._wirings())

    def end_streams(self) -> None:
        for wiring in self._wirings():
            wiring.end_streams()

    def close(self) -> None:
        """At the end of the process."""
        for wiring in self._wirings():
            wiring.close()

    def _wirings(self) -> list[Wired]:
        with self._lock:
            return [place.wiring for place in self._places.values() if place.wiring is not None]

    def _without_use(self) -> list[Wired]:
        """Take out what is too many, and what could not be made."""
        unused = [
            (origin, place)
            for origin, place in self._places.items()
            if not place.users and (place.wiring is None or not place.wiring.busy())
        ]
        failed = [origin for origin, place in unused if place.wiring is None]
        others = [origin for origin, place in unused if place.wiring and origin != self._own]
        too_many = max(len(self._places) - len(failed) - OPEN_MAX, 0)
        taken = [self._places.pop(origin) for origin in (*failed, *others[:too_many])]
        return [place.wiring for place in taken if place.wiring is not None]


class _Handing:
    """Looks like a servicer: each of its methods is that of the call's origin."""

    def __init__(self, origins: PerOrigin[Any]) -> None:
        self._origins = origins

    def __getattr__(self, method: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            with ExitStack() as held:
                wiring = held.enter_context(self._origins.using(origin_of_call(context)))
                answer = getattr(wiring.servicer, method)(request, context)
                return (
                    _to_the_end(answer, held.pop_all()) if isinstance(answer, Iterator) else answer
                )

        return call


def _to_the_end(answers: Iterator[Any], held: ExitStack) -> Iterator[Any]:
    with held:
        yield from answers
