"""Which failures of a safe call are tried again, and which end it."""

from collections.abc import Callable, Iterator

import pytest

from bernstein_api.journal.v1 import journal_pb2
from bernstein_formats.errors import BernsteinError, DiskFull, InvalidInput, Unavailable
from bernstein_runtime import channel

SAFE = f"/{journal_pb2.DESCRIPTOR.package}.JournalService/GetRun"


def steps(*outcomes: BaseException | None) -> Callable[[], str]:
    """What each call does in turn: raise, or answer."""
    left: Iterator[BaseException | None] = iter(outcomes)

    def step() -> str:
        outcome = next(left)
        if outcome is not None:
            raise outcome
        return "answer"

    return step


def test_a_service_that_cannot_be_revived_yet_is_tried_again() -> None:
    send = steps(Unavailable("gone"), None)
    revive = steps(Unavailable("not yet"), Unavailable("not yet"), None)

    assert channel.call(SAFE, send, revive=revive) == "answer"


def test_a_refusal_of_the_service_ends_the_retries() -> None:
    send, revive = steps(Unavailable("gone")), steps(DiskFull("no space left"))

    with pytest.raises(Unavailable, match="no space left"):
        channel.call(SAFE, send, revive=revive)


def test_a_service_that_refuses_to_start_did_not_refuse_the_call() -> None:
    """An appender sends what was refused again; what may have landed it does not."""
    send, revive = steps(Unavailable("gone")), steps(InvalidInput("a wrong setting"))

    with pytest.raises(BernsteinError, match="a wrong setting") as raised:
        channel.call(SAFE, send, revive=revive)
    assert not isinstance(raised.value, InvalidInput)


def test_the_last_reason_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "RETRY_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="gone"):
        channel.call(SAFE, steps(Unavailable("gone")))
