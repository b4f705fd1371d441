"""What a lane leaves behind: exchanges in the recorder, a row for each in the run's journal.

The rows of file and journal are in the same order, and a replay writes the rows that it used up in
the recorded order, whatever its timing: so it reaches the recorded head.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from bernstein_client.connection import Services
from bernstein_client.recorder import Recording
from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import RecordingChanged
from bernstein_formats.http_exchange import EVENT, Exchange
from bernstein_formats.http_replay import LaneReplay

RECORDING_EVENT = "llm_http_recording"


class RunLog:
    """One run that is recorded or replayed, shared by its lanes."""

    def __init__(self, services: Services, run_id: str) -> None:
        self._services = services
        self._run_id = run_id
        self._in_order = asyncio.Lock()

    async def record(self, exchange: Exchange, request: bytes, answer: bytes) -> None:
        """Keep an exchange; durable when it returns. Raises BernsteinError."""
        exchanges = self._services.exchanges
        await asyncio.to_thread(exchanges.store_bodies, self._run_id, request, answer)
        async with self._in_order:
            await asyncio.to_thread(exchanges.append, self._run_id, exchange)
            await self._journal([exchange])

    async def _journal(self, exchanges: list[Exchange]) -> None:
        if exchanges:
            events = [(EVENT, exchange.event()) for exchange in exchanges]
            await asyncio.to_thread(self._services.journal.append_many, self._run_id, events)


class RecordedRun(RunLog):
    """A recording that a run replays."""

    def __init__(self, services: Services, run_id: str, recorded_id: str) -> None:
        """Read the recording. Raises ReplayRecordingMissingError, RecordingChanged and others."""
        super().__init__(services, run_id)
        self.recorded_id = recorded_id
        self.exchanges, recording = services.exchanges.read(recorded_id)
        _check_unchanged(services, recorded_id, recording)
        self._waiting = deque(self.exchanges)
        self._served: set[tuple[str, int]] = set()

    def lane(self, name: str) -> LaneReplay:
        """The part that one lane recorded. Raises ReplayKeySchemeMismatchError."""
        return LaneReplay(name, self.exchanges)

    def body(self, sha256_hex: str) -> bytes:
        """A stored body. Raises ReplayRecordingMissingError, RowMalformed."""
        return self._services.exchanges.body(self.recorded_id, sha256_hex)

    async def served(self, exchange: Exchange) -> None:
        """Note that an exchange was used, and write the rows whose turn it is."""
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
    said, begun = None, b""
    for piece in services.journal.read_journal(run_id):
        *lines, begun = (begun + piece).split(b"\n")
        for line in lines:
            said = _said_in(line) or said
    return said


def _said_in(line: bytes) -> _Said | None:
    if RECORDING_EVENT.encode() not in line:
        return None
    row = parse_json(line)
    if not isinstance(row, dict) or row.get("event") != RECORDING_EVENT:
        return None
    return _Said(str(row.get("sha256")), row.get("exchange_count"))
