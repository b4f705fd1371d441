"""Exchanges that end at the same time are kept together, each by its own fate."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from bernstein_client.exchanges import Recorded
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_formats.http_exchange import Answer, End, Envelope, body_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_secrets import Redactor
from bernstein_proxy.run_log import RunLog


def recorded(seq: int) -> Recorded:
    request = HttpRequest("POST", "/openai/v1/chat/completions", (), (), b"{}")
    answer = Answer(200, body_of(b"hi"), End.COMPLETE, None, "")
    envelope = Envelope((), (), (), ((2, 1.0),))
    exchange = exchange_of("agent", seq, request, keyed(request), answer=answer, envelope=envelope)
    return Recorded(exchange, envelope.data(), b"{}", b"hi")


class Kept:
    """Stands for the services; refuses what `is_refused` says."""

    def __init__(self, is_refused: Callable[[int], bool] = lambda _: False) -> None:
        self.messages: list[list[int]] = []
        self.events: list[list[Any]] = []
        self._is_refused = is_refused
        self.services: Any = SimpleNamespace(
            exchanges=SimpleNamespace(record=self._record),
            journal=SimpleNamespace(append_many=self._append_many),
        )

    def _record(self, _: str, batch: Sequence[Recorded]) -> None:
        seqs = [each.exchange.seq for each in batch]
        if any(map(self._is_refused, seqs)):
            raise InvalidInput("a row is refused")
        self.messages.append(seqs)

    def _append_many(self, _: str, events: Sequence[tuple[str, Any]]) -> None:
        self.events.append([payload["seq"] for _, payload in events])


def kept_all(kept: Kept, count: int) -> list[BernsteinError | int]:
    async def work() -> list[BernsteinError | int]:
        log = RunLog(kept.services, "run-1", Redactor(b"key"))

        async def one(seq: int) -> BernsteinError | int:
            try:
                return (await log.record(lambda: recorded(seq))).seq
            except BernsteinError as error:
                return error

        return await asyncio.gather(*(one(seq) for seq in range(1, count + 1)))

    return asyncio.run(work())


def test_what_ends_while_others_are_kept_is_kept_in_one_go_and_in_order() -> None:
    kept = Kept()
    answers = kept_all(kept, 150)

    assert answers == list(range(1, 151))
    assert [seq for message in kept.messages for seq in message] == list(range(1, 151))
    assert kept.events == kept.messages
    assert len(kept.messages) <= 4


def test_a_refused_exchange_does_not_fail_its_neighbours() -> None:
    kept = Kept(lambda seq: seq == 5)
    answers = kept_all(kept, 10)

    assert [each for each in answers if isinstance(each, int)] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert isinstance(answers[4], InvalidInput)
    assert kept.events == kept.messages
