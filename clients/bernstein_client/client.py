"""The services for a program with threads: runs, their rows, model calls, receipts.

Everything blocks until it is done, is safe for any number of threads, and goes on in a process that
was forked. bernstein_client.async_client has the same for asyncio.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bernstein_client.append_line import AppendResult, Event
from bernstein_client.connection import Services
from bernstein_client.recorder_calls import Account, Answer, Provider, Session
from bernstein_client.replaying import RecordingRow, replay_json
from bernstein_client.values import BuiltReceipt, FinishedRun, Row, RunInfo, Verification
from bernstein_client.watching import rows_of
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import InvalidInput


def connect(
    folder: str | Path = ".", endpoint: str = "", environ: Mapping[str, str] | None = None
) -> "Client":
    """The services of a project folder, started when they are needed, or with an endpoint those of
    a fleet, as BERNSTEIN_SVC_ENDPOINT says it. Raises InvalidInput."""
    return Client(services_of(folder, endpoint, environ))


def services_of(
    folder: str | Path, endpoint: str = "", environ: Mapping[str, str] | None = None
) -> Services:
    """Raises InvalidInput for a folder that is none."""
    project = Path(folder).absolute()
    if not project.is_dir():
        raise InvalidInput(f"{project} is not a folder; name the project's", path=project)
    (project / ".sdd").mkdir(exist_ok=True)
    environ = os.environ if environ is None else environ
    named = {"BERNSTEIN_SVC_FLEET_ENDPOINT": endpoint} if endpoint else {}
    return Services(project / ".sdd", {**environ, **named})


class Client:
    """Close it, or use `with`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def create_run(
        self, run_id: str = "", metadata: Mapping[str, JsonValue] | None = None, replay_of: str = ""
    ) -> "Run":
        """Make a run, without an id under a new one; with `replay_of` its model calls are answered
        from that run's. Raises RunExists, RunNotFound, ChainBroken."""
        journal = self._services.journal
        replay = replay_json(journal.verify_run(replay_of)) if replay_of else b""
        described = spelled(dict(metadata)).encode() if metadata else b""
        return Run(self._services, journal.create_run(run_id, described, replay), replay_of)

    def run(self, run_id: str) -> "Run":
        """One that is there; "latest" is the newest. Raises RunNotFound."""
        info = self._services.journal.get_run(run_id)
        return Run(self._services, info.run_id, replayed_run(info))

    def runs(self) -> Iterator[RunInfo]:
        """All of them, newest first."""
        return self._services.journal.list_runs()

    def close(self) -> None:
        """Let go of the connections; services and runs go on."""
        self._services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    services: Services
    run_id: str
    # The run whose calls answer those of this one; empty where they are recorded.
    replay_of: str = ""

    def append(self, event: str, payload: Mapping[str, JsonValue]) -> AppendResult:
        """One row; it is durable when this returns. Raises RunSealed, InvalidInput, Unavailable:
        after the last one it is not known whether the row is there."""
        return self.services.journal.append(self.run_id, event, payload)

    def append_many(self, events: Iterable[Event]) -> AppendResult:
        """Rows in this order, any number of them: up to 1,000 events and 1 MiB land together or
        not at all, more go in pages, so that after an error the first pages may be there."""
        return self.services.journal.append_pages(self.run_id, events)

    def calls(self, providers: Sequence[Provider] = ()) -> "Calls":
        """Model calls that are recorded, or answered from the run that this one replays. Raises
        ReplayRecordingMissingError, RecordingChanged."""
        recorder = self.services.recorder
        if not self.replay_of:
            return Calls(self, recorder.open_session(self.run_id, providers=providers), True)
        row = RecordingRow(self.replay_of)
        for part in self.services.journal.read_journal(self.replay_of):
            row.feed(part)
        session = recorder.open_session(
            self.run_id, replay_run_id=self.replay_of, record=False, expected=row.recording()
        )
        return Calls(self, session, False)

    def watch(self, start_index: int = 0) -> Iterator[Row]:
        """Its rows from a position on, and those to come, until it is finished; goes on where it
        was when the journal is started anew."""
        for item in self.services.journal.watch_rows(self.run_id, start_index):
            yield from rows_of(item)

    def info(self) -> RunInfo:
        """What is known of it without verifying."""
        return self.services.journal.get_run(self.run_id)

    def verify(self) -> Verification:
        """Verified where its file is; a broken run is an answer."""
        return self.services.journal.verify_run(self.run_id)

    def finish(self) -> FinishedRun:
        """Have it sealed: nothing can be appended afterwards. Again it gives the same answer."""
        return self.services.journal.finish_run(self.run_id)

    def receipt(
        self, write: Callable[[bytes], object] | None = None, *, unfinished: bool = False
    ) -> BuiltReceipt:
        """Have a receipt built and kept beside the run; with `write` its bytes go there instead,
        and are good only if this returns. Raises KeyUnusable where the signer has no key for it."""
        return self.services.journal.build_receipt(self.run_id, write=write, unfinished=unfinished)


class Calls:
    """Model calls of one run. Close it, or use `with`: that binds what was recorded to the run."""

    def __init__(self, run: Run, session: Session, is_recording: bool) -> None:
        self._run = run
        self._session = session
        self._is_recording = is_recording
        self.account: Account | None = None

    def ask(
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
        """One call, durable when this returns; a lane's calls are answered in its own order, and
        1 and 1.0 are not the same temperature. Raises ReplayMissError, ReplayDivergenceError,
        ProviderFailed, SessionLost."""
        return self._run.services.recorder.call(
            self._session.session_id,
            lane=lane,
            model=model,
            provider=provider,
            prompt=prompt,
            temperature=str(temperature),
            max_tokens=str(max_tokens),
            parameters=parameters,
        )

    def close(self) -> Account:
        """What came of it, and `account` from now on."""
        if self.account is None:
            account = self._run.services.recorder.close_session(self._session.session_id)
            if self._is_recording and account.recording is not None:
                self._run.append(*account.recording.event())
            self.account = account
        return self.account

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replayed_run(info: RunInfo) -> str:
    """Of which run its calls are answered; empty where they are recorded."""
    return str((info.replay or {}).get("replay_of", ""))
