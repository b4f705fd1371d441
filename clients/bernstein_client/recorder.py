"""The recorder, as programs see it: model calls that are recorded, or answered from a recording."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import InvalidInput, SessionLost
from bernstein_formats.modes import RuntimeMode
from bernstein_runtime import limits

_SOURCES: Final[Mapping[int, Literal["recorded", "live", "cached"]]] = {
    recorder_pb2.ANSWER_SOURCE_RECORDED: "recorded",
    recorder_pb2.ANSWER_SOURCE_LIVE: "live",
    recorder_pb2.ANSWER_SOURCE_CACHED: "cached",
}
_MODES: Final = {
    RuntimeMode.INTERACTIVE: recorder_pb2.RUNTIME_MODE_INTERACTIVE,
    RuntimeMode.HEADLESS_EVAL: recorder_pb2.RUNTIME_MODE_HEADLESS_EVAL,
    RuntimeMode.HEADLESS_REPLAY: recorder_pb2.RUNTIME_MODE_HEADLESS_REPLAY,
    RuntimeMode.HEADLESS_JOB: recorder_pb2.RUNTIME_MODE_HEADLESS_JOB,
    RuntimeMode.CODING_AGENT: recorder_pb2.RUNTIME_MODE_CODING_AGENT,
}


@dataclass(frozen=True, slots=True)
class Provider:
    """How to reach a model provider; the key is not shown."""

    name: str
    base_url: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Recording:
    """Count, size and digest of recorded calls."""

    call_count: int
    size_bytes: int
    sha256_hex: str


@dataclass(frozen=True, slots=True)
class Session:
    """An open session; `recording` is what a replay answers from."""

    session_id: str
    recording: Recording | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer and where it came from."""

    text: str
    source: Literal["recorded", "live", "cached"]
    key: str
    warning: str
    # With a mode: the call's fingerprint, and the mode that the answer is stored under.
    fingerprint: str = ""
    stored_mode: RuntimeMode | None = None


@dataclass(frozen=True, slots=True)
class UnusedCall:
    """A recorded call that was never asked for."""

    line: int
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class Account:
    """What came of a session."""

    coverage_line: str
    hit_count: int
    miss_count: int
    strict_violation_count: int
    unused_calls: tuple[UnusedCall, ...]
    unused_count: int
    recording: Recording | None


class RecorderClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = recorder_pb2_grpc.RecorderServiceStub(connection.channel)
        # How each session was opened, and the session that goes on for one that was lost.
        self._opened: dict[str, recorder_pb2.OpenSessionRequest] = {}
        self._successors: dict[str, str] = {}
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
        request = recorder_pb2.OpenSessionRequest(
            run_id=run_id,
            request_id=self._connection.request_id(),
            replay_run_id=replay_run_id,
            allow_live_miss=allow_live_miss,
            record=record,
            providers=[
                recorder_pb2.Provider(name=each.name, base_url=each.base_url, api_key=each.api_key)
                for each in providers
            ],
            expected=_packed(expected),
            mode=_MODES[mode] if mode else recorder_pb2.RUNTIME_MODE_UNSPECIFIED,
            seed=seed,
            agent_version=agent_version,
        )
        answer = self._connection.call(self._stub.OpenSession, request, "OpenSession")
        self._opened[answer.session_id] = request
        recording = answer.recording if answer.HasField("recording") else None
        return Session(answer.session_id, _unpacked(recording))

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
        request = recorder_pb2.CallRequest(
            session_id=self._current(session_id),
            request_id=self._connection.request_id(),
            lane=lane,
            model=model,
            provider=provider,
            prompt=encoded_prompt(prompt),
            temperature=temperature,
            max_tokens=max_tokens,
            parameters_json=spelled(dict(parameters)).encode() if parameters else b"",
            call_class=call_class,
            family=family,
        )
        answer = self._sent(request)
        value = json.loads(answer.response_json)
        return Answer(
            text=value if isinstance(value, str) else spelled(value),
            source=_SOURCES[answer.source],
            key=answer.key,
            warning=answer.warning,
            fingerprint=answer.fingerprint,
            stored_mode=next((k for k, v in _MODES.items() if v == answer.stored_mode), None),
        )

    def _sent(self, request: recorder_pb2.CallRequest) -> recorder_pb2.CallResponse:
        """A recording goes on in a new session when the recorder was restarted: the call keeps its
        request id, so an answer that was paid for is not paid for twice. A replay cannot go on."""
        send = partial(self._connection.call, self._stub.Call, request, "Call")
        try:
            return send(limits.LONG_CALL_TIMEOUT_SECONDS)
        except SessionLost as lost:
            if lost.metadata.get("kind") != "record":
                raise
        request.session_id = self._reopened(request.session_id)
        return send(limits.LONG_CALL_TIMEOUT_SECONDS)

    def _reopened(self, session_id: str) -> str:
        with self._lock:
            if session_id not in self._successors:
                request = recorder_pb2.OpenSessionRequest()
                request.CopyFrom(self._opened[session_id])
                request.request_id = self._connection.request_id()
                answer = self._connection.call(self._stub.OpenSession, request, "OpenSession")
                self._opened[answer.session_id] = request
                self._successors[session_id] = answer.session_id
            return self._successors[session_id]

    def _current(self, session_id: str) -> str:
        while session_id in self._successors:
            session_id = self._successors[session_id]
        return session_id

    def close_session(self, session_id: str) -> Account:
        """End a session; asked again it gives the same account."""
        request = recorder_pb2.CloseSessionRequest(session_id=self._current(session_id))
        answer = self._connection.call(self._stub.CloseSession, request, "CloseSession")
        return Account(
            coverage_line=answer.coverage_line,
            hit_count=answer.hit_count,
            miss_count=answer.miss_count,
            strict_violation_count=answer.strict_violation_count,
            unused_calls=tuple(
                UnusedCall(each.line, each.key, each.model) for each in answer.unused_calls
            ),
            unused_count=answer.unused_count,
            recording=_unpacked(answer.recording if answer.HasField("recording") else None),
        )

    def get_recording(self, run_id: str) -> Recording:
        """Raises ReplayRecordingMissingError."""
        request = recorder_pb2.GetRecordingRequest(run_id=run_id)
        answer = self._connection.call(self._stub.GetRecording, request, "GetRecording")
        return Recording(
            answer.recording.call_count,
            answer.recording.size_bytes,
            answer.recording.sha256.hex(),
        )

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


def encoded_prompt(prompt: str) -> bytes:
    """Raises InvalidInput for half a surrogate pair, which has no bytes (field case F11)."""
    try:
        return prompt.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the prompt has half a surrogate pair at character {error.start}; "
            "cut texts between characters",
            field="prompt",
            offset=error.start,
        ) from None


def _packed(recording: Recording | None) -> recorder_pb2.Recording | None:
    if recording is None:
        return None
    return recorder_pb2.Recording(
        call_count=recording.call_count,
        size_bytes=recording.size_bytes,
        sha256=bytes.fromhex(recording.sha256_hex),
    )


def _unpacked(recording: recorder_pb2.Recording | None) -> Recording | None:
    if recording is None:
        return None
    return Recording(recording.call_count, recording.size_bytes, recording.sha256.hex())
