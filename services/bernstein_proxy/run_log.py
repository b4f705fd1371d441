"""What a lane leaves behind: exchanges in the recorder, a row for each in the run's journal.

The rows of file and journal are in the same order, and a replay writes the rows that it used up in
the recorded order, whatever its timing: so it reaches the recorded head.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bernstein_client.agent_rows import RECORDING, read_rows
from bernstein_client.connection import Services
from bernstein_client.exchanges import Recorded
from bernstein_client.recorder import Recording
from bernstein_formats.agent_environment import EVENT as ENVIRONMENT
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    BernsteinError,
    InvalidInput,
    RecordingChanged,
    ReplayKeySchemeMismatchError,
    ReplayRecordingMissingError,
)
from bernstein_formats.http_exchange import EVENT, Envelope, Exchange
from bernstein_formats.http_key import HttpRequest
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_replay import LaneReplay, ReleaseOrder
from bernstein_formats.http_secrets import Redactor

# So many exchanges are kept at once.
BATCH_MAX = 64


# Makes an exchange out of what went by: work for another thread than the one that passes it on.
Make = Callable[[], Recorded]


@dataclass(slots=True)
class _Waiting:
    """An exchange until it is kept, or not."""

    make: Make
    made: Recorded | None = None
    error: BernsteinError | None = None
    # Where its row goes; None: into the journal.
    rows: list[Exchange] | None = None


class RunLog:
    """One run that is recorded or replayed, shared by its lanes."""

    def __init__(self, services: Services, run_id: str, redactor: Redactor) -> None:
        self.redactor = redactor
        self._services = services
        self._run_id = run_id
        self._in_order = asyncio.Lock()
        self._waiting_to_be_kept: deque[_Waiting] = deque()

    async def record(self, make: Make, rows: list[Exchange] | None = None) -> Exchange:
        """Keep an exchange; durable when it returns. Raises BernsteinError.

        What comes while others are being kept is kept with the next ones, in one go. With `rows`
        its row goes there instead of into the journal.
        """
        mine = _Waiting(make, rows=rows)
        self._waiting_to_be_kept.append(mine)
        async with self._in_order:
            while mine in self._waiting_to_be_kept:
                await asyncio.to_thread(self._keep, self._next_batch())
        if mine.error is not None:
            raise mine.error
        assert mine.made is not None
        return mine.made.exchange

    def _next_batch(self) -> list[_Waiting]:
        waiting = self._waiting_to_be_kept
        return [waiting.popleft() for _ in range(min(len(waiting), BATCH_MAX))]

    def _keep(self, batch: list[_Waiting]) -> None:
        for each in batch:
            try:
                each.made = each.made or each.make()
            except BernsteinError as failure:
                each.error = failure
        made = [each for each in batch if each.error is None]
        error = self._kept(made)
        if isinstance(error, InvalidInput) and len(made) > 1:
            # One that is refused must not fail its neighbours.
            for each in made:
                self._keep([each])
            return
        for each in made:
            each.error = error

    def _kept(self, batch: list[_Waiting]) -> BernsteinError | None:
        made = [(each.made, each.rows) for each in batch if each.made is not None]
        if not made:
            return None
        events = [event for each, rows in made if rows is None for event in each.exchange.events()]
        try:
            self._services.exchanges.record(self._run_id, [each for each, _ in made])
            if events:
                self._services.journal.append_many(self._run_id, events)
        except BernsteinError as error:
            return error
        for each, rows in made:
            if rows is not None:
                rows.append(each.exchange)
        return None

    async def write(self, rows: list[Exchange]) -> None:
        """Write the rows of a lane that ends."""
        async with self._in_order:
            await self._journal(rows)

    async def _journal(self, exchanges: list[Exchange]) -> None:
        if exchanges:
            events = [event for exchange in exchanges for event in exchange.events()]
            await asyncio.to_thread(self._services.journal.append_many, self._run_id, events)


class RecordedRun(RunLog):
    """A recording that a run replays."""

    def __init__(
        self, services: Services, run_id: str, recorded_id: str, redactor: Redactor
    ) -> None:
        """Read the recording. Raises ReplayRecordingMissingError, RecordingChanged and others."""
        super().__init__(services, run_id, redactor)
        self.recorded_id = recorded_id
        self.exchanges = _read(services, recorded_id)
        _check_redaction(self.exchanges, redactor)
        self._waiting = deque(self.exchanges)
        self._served: set[tuple[str, int]] = set()

    def lane(self, name: str) -> LaneReplay:
        """The part that one lane recorded. Raises ReplayKeySchemeMismatchError."""
        return LaneReplay(name, self.exchanges)

    def answer(self, exchange: Exchange) -> tuple[Envelope, bytes]:
        """What was answered. Raises ReplayRecordingMissingError, RowMalformed."""
        exchanges = self._services.exchanges
        return exchanges.envelope_and(self.recorded_id, exchange, exchange.answer.body)

    def request(self, exchange: Exchange) -> HttpRequest:
        """What was asked. Raises likewise."""
        return self._services.exchanges.request(self.recorded_id, exchange)

    def order(self, name: str) -> ReleaseOrder:
        """The order in which a lane's answers ended; tools' have one of their own."""
        models = (each for each in self.exchanges if each.protocol != Protocol.MCP)
        return ReleaseOrder(name, models)

    async def write(self, rows: list[Exchange]) -> None:
        """Write the rows of a lane that ends, in the recorded order."""
        used = {(each.lane, each.seq) for each in rows}
        await super().write([each for each in self.exchanges if (each.lane, each.seq) in used])

    async def served(self, exchange: Exchange, rows: list[Exchange] | None) -> None:
        """Note that an exchange was used, and write the rows whose turn it is."""
        if rows is not None:
            rows.append(exchange)
            return
        self._served.add((exchange.lane, exchange.seq))
        async with self._in_order:
            ready: list[Exchange] = []
            while self._waiting and self._is_served(self._waiting[0]):
                ready.append(self._waiting.popleft())
            await self._journal(ready)

    async def flush(self) -> None:
        """Write the rows that still wait for one before them, which nobody asked for."""
        async with self._in_order:
            ready = [each for each in self._waiting if self._is_served(each)]
            self._waiting.clear()
            await self._journal(ready)

    def _is_served(self, exchange: Exchange) -> bool:
        return (exchange.lane, exchange.seq) in self._served


def _read(services: Services, run_id: str) -> list[Exchange]:
    """What was recorded; none where agents were recorded that said nothing."""
    try:
        exchanges, recording = services.exchanges.read(run_id)
    except ReplayRecordingMissingError:
        if read_rows(services, run_id, RECORDING, EVENT) or not read_rows(
            services, run_id, ENVIRONMENT
        ):
            raise
        return []
    _check_unchanged(services, run_id, recording)
    return exchanges


def _check_redaction(exchanges: Iterable[Exchange], redactor: Redactor) -> None:
    """Where secrets were replaced, only the same key replaces them likewise."""
    other = {each.redaction_key for each in exchanges} - {"", redactor.key_id}
    if other:
        recorded = ", ".join(sorted(other))
        raise ReplayKeySchemeMismatchError(
            f"key scheme mismatch: secrets in the recording were replaced with key {recorded},"
            f" and this user's is {redactor.key_id}: put the key file of whoever recorded it in"
            " the place of yours (docs/agents.md), or record the run again",
            recorded=recorded,
            ours=redactor.key_id,
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """What a run's journal says of its recording."""

    sha256_hex: str
    exchange_count: JsonValue


def _check_unchanged(services: Services, run_id: str, recording: Recording) -> None:
    said = _said_of(services, run_id)
    if said is not None and said != _Said(recording.sha256_hex, recording.call_count):
        raise RecordingChanged(
            f"llm_http.jsonl of run {run_id} is not what its journal says of it: the journal has"
            f" {said.exchange_count} exchanges, digest {said.sha256_hex[:16]}, the file"
            f" {recording.call_count}, digest {recording.sha256_hex[:16]}; restore the file",
            run_id=run_id,
        )


def _said_of(services: Services, run_id: str) -> _Said | None:
    rows = read_rows(services, run_id, RECORDING)
    return _Said(str(rows[-1].get("sha256")), rows[-1].get("exchange_count")) if rows else None
