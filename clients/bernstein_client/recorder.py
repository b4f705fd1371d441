"""The recorder, as programs see it: model calls that are recorded, or answered from a recording."""

import threading
from collections.abc import Mapping, Sequence

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_client import recorder_calls
from bernstein_client.recorder_calls import (
    Account,
    Answer,
    Provider,
    Recording,
    Session,
    UnusedCall,
)
from bernstein_client.rpc import Answer as Read
from bernstein_client.rpc import Rpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import SessionLost
from bernstein_formats.modes import RuntimeMode
from bernstein_runtime import forked

__all__ = [
    "Account",
    "Answer",
    "Provider",
    "RecorderClient",
    "Recording",
    "Session",
    "UnusedCall",
]


class RecorderClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = recorder_pb2_grpc.RecorderServiceStub(connection.channel)
        # How each session was opened, and the session that goes on for one that was lost.
        self._opened: dict[str, recorder_pb2.OpenSessionRequest] = {}
        self._successors: dict[str, str] = {}
        self._lock = threading.Lock()
        forked.renew_after_fork(self)

    def after_fork(self) -> None:
        """Its lock may be held by a thread that a child does not have."""
        self._lock = threading.Lock()

    def open_session(
        self,
        run_id: str,
        *,
        replay_run_id: str = "",
        allow_live_miss: bool = False,
        record: bool = True,
        providers: Sequence[Provider] = (),
        expected: Recording | None = None,
        mode: RuntimeMode | None = None,
        seed: int | None = None,
        agent_version: str = "",
    ) -> Session:
        """Raises ReplayRecordingMissingError, RecordingChanged, CacheModeError, SeedRequiredError.

        With a mode every call has a fingerprint, and answers are kept and found by it, too.
        """
        rpc = recorder_calls.open_session(
            self._connection.request_id(),
            run_id,
            replay_run_id=replay_run_id,
            allow_live_miss=allow_live_miss,
            record=record,
            providers=providers,
            expected=expected,
            mode=mode,
            seed=seed,
            agent_version=agent_version,
        )
        return self._open(rpc)

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
        parameters: Mapping[str, JsonValue] | None = None,
        call_class: str = "",
        family: str = "",
    ) -> Answer:
        """One model call; it is recorded durably when this returns. Raises ReplayMissError,
        ReplayDivergenceError, SessionLost, ProviderFailed. Temperature and limit are literal
        texts, so that 1, 1.0 and null stay apart."""
        rpc = recorder_calls.call(
            self._connection.request_id(),
            self._current(session_id),
            lane=lane,
            model=model,
            provider=provider,
            prompt=prompt,
            temperature=temperature,
            max_tokens=max_tokens,
            parameters=parameters,
            call_class=call_class,
            family=family,
        )
        return self._sent(rpc)

    def _sent(self, rpc: Rpc[Answer]) -> Answer:
        """A recording goes on in a new session when the recorder was restarted: the call keeps its
        request id, so an answer that was paid for is not paid for twice. A replay cannot go on."""
        try:
            return self._answer(rpc)
        except SessionLost as lost:
            if lost.metadata.get("kind") != "record":
                raise
        request = rpc.request
        assert isinstance(request, recorder_pb2.CallRequest)
        request.session_id = self._reopened(request.session_id)
        return self._answer(rpc)

    def _reopened(self, session_id: str) -> str:
        with self._lock:
            if session_id not in self._successors:
                request = recorder_pb2.OpenSessionRequest()
                request.CopyFrom(self._opened[session_id])
                request.request_id = self._connection.request_id()
                session = self._open(recorder_calls.open_again(request))
                self._successors[session_id] = session.session_id
            return self._successors[session_id]

    def _open(self, rpc: Rpc[Session]) -> Session:
        session = self._answer(rpc)
        assert isinstance(rpc.request, recorder_pb2.OpenSessionRequest)
        self._opened[session.session_id] = rpc.request
        return session

    def _current(self, session_id: str) -> str:
        while session_id in self._successors:
            session_id = self._successors[session_id]
        return session_id

    def close_session(self, session_id: str) -> Account:
        """End a session; asked again it gives the same account."""
        return self._answer(recorder_calls.close_session(self._current(session_id)))

    def get_recording(self, run_id: str) -> Recording:
        """Raises ReplayRecordingMissingError."""
        return self._answer(recorder_calls.get_recording(run_id))

    def append_calls(
        self, run_id: str, start_offset: int, data: bytes, prefix_sha256: bytes | None = None
    ) -> int:
        """Append stored calls verbatim; gives the size of the file.

        Raises HeadMoved where the bytes before them are not what `prefix_sha256` says.
        """
        request = recorder_pb2.AppendCallsRequest(
            run_id=run_id, data=data, start_offset=start_offset, prefix_sha256=prefix_sha256
        )
        return self._connection.call(self._stub.AppendCalls, request, "AppendCalls").size_bytes

    def _answer(self, rpc: Rpc[Read]) -> Read:
        return self._connection.answer(self._stub, rpc)
