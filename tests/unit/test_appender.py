"""What becomes of a batch that fails: its callers are told, and no event is doubled."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from bernstein_client.append_line import AppendResult, EncodedEvent
from bernstein_client.appender import Appender
from bernstein_formats.errors import BernsteinError, InvalidInput, StoreFailed, Unavailable


class Journal:
    """Keeps what it is sent; its first answer waits until the others stand in line."""

    def __init__(self, failure: BernsteinError, *, lands: bool) -> None:
        self.rows: list[str] = []
        self.sent: list[int] = []
        self.first_is_here = threading.Event()
        self.go_on = threading.Event()
        self._failure = failure
        self._lands = lands

    def send(self, events: Sequence[EncodedEvent]) -> AppendResult:
        self.sent.append(len(events))
        if len(self.sent) == 1:
            self.first_is_here.set()
            self.go_on.wait()
        names = [event for event, _ in events]
        fails = len(names) > 1 or names == ["bad"]
        if not fails or self._lands:
            self.rows += names
        if fails:
            raise self._failure
        return AppendResult(len(self.rows) - 1, "", len(self.rows))


def results(journal: Journal) -> list[Future[AppendResult]]:
    """One append goes ahead; three more have to leave together."""
    appender = Appender(journal.send)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(appender.append, [("first", b"{}")])]
        journal.first_is_here.wait()
        futures += [pool.submit(appender.append, [(name, b"{}")]) for name in ("a", "bad", "b")]
        while len(appender._line.waiting) < 3:
            threading.Event().wait(0.001)
        journal.go_on.set()
    return futures


@pytest.mark.parametrize("failure", [Unavailable("gone"), StoreFailed("x"), BernsteinError("?")])
def test_a_batch_that_may_have_landed_is_not_sent_again(failure: BernsteinError) -> None:
    journal = Journal(failure, lands=True)
    first, *others = results(journal)
    assert first.result().row_count == 1
    assert [each.exception() for each in others] == [failure] * 3
    assert sorted(journal.rows) == ["a", "b", "bad", "first"]
    assert journal.sent == [1, 3]


def test_a_refused_event_does_not_fail_those_beside_it() -> None:
    journal = Journal(InvalidInput("bad event"), lands=False)
    _, a, bad, b = results(journal)
    assert isinstance(bad.exception(), InvalidInput)
    assert a.exception() is None
    assert b.exception() is None
    assert sorted(journal.rows) == ["a", "b", "first"]
