"""What a run needs of the services, as protocols: bernstein_client fulfils them, tests as well."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from bernstein_client.append_line import AppendResult
from bernstein_client.recorder import Account, Answer, Provider, Recording, Session
from bernstein_client.values import FinishedRun, Verification
from bernstein_formats.canonical import JsonValue


class Journal(Protocol):
    """The journal service: what `append_many` returns from is durable, whole and in order."""

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str: ...
    def append_many(
        self, run_id: str, events: Sequence[tuple[str, Mapping[str, JsonValue]]]
    ) -> AppendResult: ...
    def finish_run(self, run_id: str, *, spine_seal: bool = True) -> FinishedRun: ...
    def read_journal(self, run_id: str) -> Iterator[bytes]: ...
    def verify_run(self, run_id: str) -> Verification: ...


class Recorder(Protocol):
    """The recorder service; `call` is safe for any number of threads."""

    def open_session(
        self,
        run_id: str,
        *,
        replay_run_id: str = "",
        allow_live_miss: bool = False,
        record: bool = True,
        providers: Sequence[Provider] = (),
        expected: Recording | None = None,
    ) -> Session: ...
    def call(
        self,
        session_id: str,
        *,
        lane: str,
        model: str,
        provider: str,
        prompt: str,
        temperature: str,
        max_tokens: str,
    ) -> Answer: ...
    def close_session(self, session_id: str) -> Account: ...
    def get_recording(self, run_id: str) -> Recording: ...
