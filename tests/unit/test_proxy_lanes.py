"""Lanes without a proxy around them: which of them end by themselves, and whose turn it is."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_client.connection import Services
from bernstein_formats.http_exchange import Answer, End, Envelope, Exchange, body_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_replay import LaneReplay, ReleaseOrder
from bernstein_formats.http_secrets import Redactor
from bernstein_proxy import playback
from bernstein_proxy.lanes import UNHELD_SECONDS, Lane, Lanes, Wanted
from bernstein_proxy.run_log import RunLog


def exchange(seq: int) -> Exchange:
    body = json.dumps({"n": seq}).encode()
    request = HttpRequest("POST", "/openai/v1/responses", (), (), body)
    answer = Answer(200, body_of(b"a"), End.COMPLETE, None, "stop")
    envelope = Envelope((), (), (), ((1, 0.5),))
    return exchange_of("agent", seq, request, keyed(request), answer=answer, envelope=envelope)


REDACTOR = Redactor(b"k" * 32)
FIRST, SECOND = exchange(1), exchange(2)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(tmp_path / ".sdd", {"HOME": str(tmp_path)})


def ordered(services: Services) -> tuple[Lane, LaneReplay]:
    """A lane whose second answer ended before its first when it was recorded."""
    lane = Lane(Wanted("run", "agent"), RunLog(services, "run", REDACTOR), is_held=True)
    lane.order = ReleaseOrder("agent", [SECOND, FIRST])
    lane.replay = LaneReplay("agent", [SECOND, FIRST])
    return lane, lane.replay


def test_a_lane_that_nobody_holds_ends_a_day_after_its_last_call(services: Services) -> None:
    lanes = Lanes(services, REDACTOR)

    def opened(name: str, *, is_held: bool, idle_seconds: float) -> Lane:
        lane = Lane(Wanted(name, "agent"), RunLog(services, name, REDACTOR), is_held)
        lane.used_at -= idle_seconds
        lanes._open[lane.token] = lane
        return lane

    async def left() -> set[Any]:
        opened("idle", is_held=False, idle_seconds=UNHELD_SECONDS + 1)
        opened("used", is_held=False, idle_seconds=UNHELD_SECONDS - 60)
        opened("held", is_held=True, idle_seconds=UNHELD_SECONDS + 1)
        answering = opened("answering", is_held=False, idle_seconds=UNHELD_SECONDS + 1)
        task = asyncio.current_task()
        assert task is not None
        answering.answering.add(task)
        await lanes.end_idle()
        return {each.wanted.run_id for each in lanes._open.values()}

    assert asyncio.run(left()) == {"used", "held", "answering"}


def test_answers_wait_for_those_that_ended_before_them(services: Services) -> None:
    given: list[int] = []

    async def race() -> Lane:
        lane, replay = ordered(services)

        async def answer(each: Exchange) -> None:
            async with playback._turn(each, lane, replay):
                given.append(each.seq)

        early = asyncio.create_task(answer(FIRST))
        for _ in range(5):  # until it waits
            await asyncio.sleep(0)
        await answer(SECOND)
        await early
        return lane

    assert (asyncio.run(race()).late, given) == (0, [2, 1])


def test_an_answer_does_not_wait_for_ever(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback, "TURN_SECONDS", 0.01)

    async def alone() -> Lane:
        lane, replay = ordered(services)
        async with playback._turn(FIRST, lane, replay):
            pass
        return lane

    lane = asyncio.run(alone())
    assert lane.late == 1
    assert "out of its turn" in lane.notes[0]


def test_in_a_closed_lane_nobody_waits(services: Services) -> None:
    async def closed() -> Lane:
        lane, replay = ordered(services)
        replay.close()
        async with playback._turn(FIRST, lane, replay):
            return lane

    assert asyncio.run(closed()).late == 0
