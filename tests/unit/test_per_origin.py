"""Many origins in one process: each is wired once, when first asked for, and closed when unused."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bernstein_formats.errors import NotAllowed
from bernstein_runtime import per_origin
from bernstein_runtime.origin import origin_metadata
from bernstein_runtime.per_origin import PerOrigin

OWN = "here:/p"


class Wiring:
    """Says whose it is."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.is_closed = self.is_busy = False
        self.servicer = self

    def Answer(self, request: str, context: Any) -> str:  # noqa: N802 - as in a .proto
        return f"{self.origin} {request}"

    def Stream(self, request: str, context: Any) -> Iterator[str]:  # noqa: N802 - likewise
        yield self.origin
        yield "closed" if self.is_closed else "open"

    def check(self) -> None: ...

    def busy(self) -> bool:
        return self.is_busy

    def end_streams(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Call:
    """As much of a call as is looked at."""

    def __init__(self, origin: str = "") -> None:
        self._metadata = (origin_metadata(origin),) if origin else ()

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


class Made:
    """Origins, and every wiring that was made for them."""

    def __init__(self) -> None:
        self.wirings: dict[str, Wiring] = {}
        self.count = 0
        self.origins = PerOrigin(OWN, self._wire)

    def _wire(self, origin: str) -> Wiring:
        if origin == "denied:/p":
            raise NotAllowed("not here")
        self.count += 1
        self.wirings[origin] = Wiring(origin)
        return self.wirings[origin]

    def ask(self, origin: str = "") -> str:
        return str(self.origins.servicer.Answer("r", Call(origin)))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(per_origin, "OPEN_MAX", 3)
    return Made()


def test_a_call_goes_to_its_origin_and_to_our_own_when_it_names_none(made: Made) -> None:
    assert made.ask() == f"{OWN} r"
    assert made.ask("büro:/a b") == "büro:/a b r"
    assert made.count == 2


def test_an_origin_is_wired_once_however_many_ask_at_once(made: Made) -> None:
    barrier = threading.Barrier(8)

    def ask(_: int) -> str:
        barrier.wait()
        return made.ask("a:/p")

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"a:/p r"}
    assert made.count == 2


def test_the_origins_that_nobody_used_for_longest_are_closed(made: Made) -> None:
    made.ask("a:/p")
    made.ask("b:/p")
    made.ask("a:/p")
    made.ask("c:/p")

    assert [name for name, each in made.wirings.items() if each.is_closed] == ["b:/p"]
    made.ask("b:/p")
    assert made.wirings["b:/p"].is_closed is False
    assert made.wirings[OWN].is_closed is False


def test_one_that_somebody_comes_back_for_stays_open(made: Made) -> None:
    made.ask("a:/p")
    made.wirings["a:/p"].is_busy = True
    for name in "bcde":
        made.ask(f"{name}:/p")

    assert made.wirings["a:/p"].is_closed is False
    assert made.origins.busy()


def test_a_stream_keeps_its_origin_open_to_its_end(made: Made) -> None:
    stream = made.origins.servicer.Stream("r", Call("a:/p"))
    assert next(stream) == "a:/p"
    for name in "bcde":
        made.ask(f"{name}:/p")

    assert next(stream) == "open"
    assert list(stream) == []
    made.ask("f:/p")
    assert made.wirings["a:/p"].is_closed


def test_an_origin_that_cannot_be_served_is_refused_each_time_and_not_kept(made: Made) -> None:
    for _ in range(2):
        with pytest.raises(NotAllowed):
            made.ask("denied:/p")
    made.origins.close()
    assert all(each.is_closed for each in made.wirings.values())
