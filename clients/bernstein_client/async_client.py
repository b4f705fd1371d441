"""The same as bernstein_client.client for asyncio: for the loop that runs, and no other process."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bernstein_api.journal.v1 import journal_pb2_grpc
from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_client import journal_calls, recorder_calls
from bernstein_client.append_line import AppendResult, Event, encoded, joined, pages
from bernstein_client.async_appender import AsyncAppender
from bernstein_client.async_channel import AsyncServiceChannel
from bernstein_client.client import replayed_run, services_of
from bernstein_client.connection import Services
from bernstein_client.journal_calls import ReceiptReader
from bernstein_client.recorder_calls import Account, Answer, Provider, Session
from bernstein_client.replaying import RecordingRow, replay_json
from bernstein_client.rpc import Rpc
from bernstein_client.values import (
    BuiltReceipt,
    FinishedRun,
    Row,
    RunInfo,
    Verification,
    no_progress,
)
from bernstein_client.watching import WATCH_TRIES, index_after, rows_of
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import SessionLost, Unavailable


def connect_async(
    folder: str | Path = ".", endpoint: str = "", environ: Mapping[str, str] | None = None
) -> "AsyncClient":
    """Like `connect`; to be used by one event loop. Raises InvalidInput."""
    return AsyncClient(services_of(folder, endpoint, environ))


class _Channels:
    """The channels of one client, and the lines in front of them."""

    def __init__(self, services: Services) -> None:
        self.services = services
        connector = services.connector
        self.journal = AsyncServiceChannel(
            "journal", journal_pb2_grpc.JournalServiceStub, connector
        )
        self.recorder = AsyncServiceChannel(
            "recorder", recorder_pb2_grpc.RecorderServiceStub, connector
        )
        self._appenders: dict[str, AsyncAppender] = {}

    def appender(self, run_id: str) -> AsyncAppender:
        if run_id not in self._appenders:
            self._appenders[run_id] = AsyncAppender(
                lambda batch: self.journal.answer(
                    journal_calls.append_events(self.journal.request_id(), run_id, batch)
                )
            )
        return self._appenders[run_id]

    async def close(self) -> None:
        for appender in self._appenders.values():
            await appender.close()
        await self.journal.close()
        await self.recorder.close()
        await asyncio.to_thread(self.services.close)


class AsyncClient:
    """Use `async with`, or close it."""

    def __init__(self, services: Services) -> None:
        self._channels = _Channels(services)

    async def create_run(
        self, run_id: str = "", metadata: Mapping[str, JsonValue] | None = None, replay_of: str = ""
    ) -> "AsyncRun":
        """See Client.create_run."""
        journal = self._channels.journal
        replay = b""
        if replay_of:
            replay = replay_json(await _verified(journal, replay_of))
        described = spelled(dict(metadata)).encode() if metadata else b""
        rpc = journal_calls.create_run(journal.request_id(), run_id, described, replay)
        return AsyncRun(self._channels, await journal.answer(rpc), replay_of)

    async def run(self, run_id: str) -> "AsyncRun":
        """See Client.run."""
        found = await self._channels.journal.answer(journal_calls.get_run(run_id))
        return AsyncRun(self._channels, found.run_id, replayed_run(found))

    async def close(self) -> None:
        """Let go of the connections, once nobody waits for an append any more."""
        await self._channels.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class AsyncRun:
    """One run."""

    channels: _Channels = field(repr=False)
    run_id: str
    # See Run.
    replay_of: str = ""

    async def append(self, event: str, payload: Mapping[str, JsonValue]) -> AppendResult:
        """See Run.append. When it is cancelled the row may be there; half of one never is."""
        return await self.channels.appender(self.run_id).append(encoded([(event, payload)]))

    async def append_many(self, events: Iterable[Event]) -> AppendResult:
        """See Run.append_many."""
        appender = self.channels.appender(self.run_id)
        return joined([await appender.append(page) for page in pages(events)])

    async def calls(self, providers: Sequence[Provider] = ()) -> "AsyncCalls":
        """See Run.calls."""
        recorder = self.channels.recorder
        if not self.replay_of:
            rpc = recorder_calls.open_session(
                recorder.request_id(), self.run_id, providers=providers
            )
            return AsyncCalls(self, rpc, await recorder.answer(rpc), is_recording=True)
        row, stream = RecordingRow(self.replay_of), journal_calls.read_journal(self.replay_of)
        async for part in self.channels.journal.stream(stream):
            row.feed(stream.read(part))
        rpc = recorder_calls.open_session(
            recorder.request_id(),
            self.run_id,
            replay_run_id=self.replay_of,
            record=False,
            expected=row.recording(),
        )
        return AsyncCalls(self, rpc, await recorder.answer(rpc), is_recording=False)

    async def watch(self, start_index: int = 0) -> AsyncGenerator[Row, None]:
        """See Run.watch."""
        next_index, failures = start_index, 0
        while True:
            rpc = journal_calls.watch_rows(self.run_id, next_index)
            try:
                async for answer in self.channels.journal.stream(rpc):
                    item = rpc.read(answer)
                    if item is None:
                        continue
                    next_index, failures = index_after(item), 0
                    for row in rows_of(item):
                        yield row
            except Unavailable:
                failures += 1
                if failures > WATCH_TRIES:
                    raise
            else:
                return

    async def info(self) -> RunInfo:
        """See Run.info."""
        return await self.channels.journal.answer(journal_calls.get_run(self.run_id))

    async def verify(self) -> Verification:
        """See Run.verify."""
        return await _verified(self.channels.journal, self.run_id)

    async def finish(self) -> FinishedRun:
        """See Run.finish."""
        return await self.channels.journal.answer(journal_calls.finish_run(self.run_id))

    async def receipt(
        self, write: Callable[[bytes], object] | None = None, *, unfinished: bool = False
    ) -> BuiltReceipt:
        """See Run.receipt."""
        journal = self.channels.journal
        rpc = journal_calls.build_receipt(
            journal.request_id(), self.run_id, download=write is not None, unfinished=unfinished
        )
        reader = ReceiptReader(write, no_progress)
        async for item in journal.stream(rpc):
            if built := reader.take(item):
                return built
        raise AssertionError("the summary is the last message")


class AsyncCalls:
    """See Calls; use `async with`, or close it."""

    def __init__(
        self, run: AsyncRun, opened: Rpc[Session], session: Session, *, is_recording: bool
    ) -> None:
        self._run = run
        self._opened = opened
        self._session_id = session.session_id
        self._is_recording = is_recording
        self._reopening = asyncio.Lock()
        self.account: Account | None = None

    async def ask(
        self,
        prompt: str,
        *,
        model: str,
        provider: str,
        lane: str,
        temperature: float | None = None,
        max_tokens: int | None = None,
        parameters: Mapping[str, JsonValue] | None = None,
    ) -> Answer:
        """See Calls.ask."""
        recorder = self._run.channels.recorder
        session_id = self._session_id
        rpc = recorder_calls.call(
            recorder.request_id(),
            session_id,
            lane=lane,
            model=model,
            provider=provider,
            prompt=prompt,
            temperature=str(temperature),
            max_tokens=str(max_tokens),
            parameters=parameters,
        )
        try:
            return await recorder.answer(rpc)
        except SessionLost as lost:
            if lost.metadata.get("kind") != "record":
                raise
        # The call keeps its request id: an answer that was paid for is not paid for twice.
        assert isinstance(rpc.request, recorder_pb2.CallRequest)
        rpc.request.session_id = await self._reopened(session_id)
        return await recorder.answer(rpc)

    async def close(self) -> Account:
        """See Calls.close."""
        if self.account is None:
            rpc = recorder_calls.close_session(self._session_id)
            account = await self._run.channels.recorder.answer(rpc)
            if self._is_recording and account.recording is not None:
                await self._run.append(*account.recording.event())
            self.account = account
        return self.account

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _reopened(self, lost_id: str) -> str:
        """The session that goes on for one that the recorder forgot when it was restarted."""
        async with self._reopening:
            if self._session_id == lost_id:
                recorder = self._run.channels.recorder
                request = recorder_pb2.OpenSessionRequest()
                assert isinstance(self._opened.request, recorder_pb2.OpenSessionRequest)
                request.CopyFrom(self._opened.request)
                request.request_id = recorder.request_id()
                session = await recorder.answer(recorder_calls.open_again(request))
                self._session_id = session.session_id
            return self._session_id


async def _verified(journal: AsyncServiceChannel, run_id: str) -> Verification:
    rpc = journal_calls.verify_run(run_id)
    async for item in journal.stream(rpc):
        if found := rpc.read(item):
            return found
    raise AssertionError("the verification is the last message")
