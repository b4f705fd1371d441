"""The recorder's calls as values, and what their answers mean: the same for threads and tasks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from bernstein_api.recorder.v1 import recorder_pb2
from bernstein_client.append_line import Event
from bernstein_client.rpc import Rpc
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import InvalidInput
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

    def event(self) -> Event:
        """Binds the recorded calls to the journal, and so to its receipt."""
        return "llm_recording", {
            "file": "llm_calls.jsonl",
            "call_count": self.call_count,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256_hex,
        }


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


def open_session(
    request_id: str,
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
) -> Rpc[Session]:
    request = recorder_pb2.OpenSessionRequest(
        run_id=run_id,
        request_id=request_id,
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
    return open_again(request)


def open_again(request: recorder_pb2.OpenSessionRequest) -> Rpc[Session]:
    """The same, from its request."""
    return Rpc("OpenSession", request, _session)


def call(
    request_id: str,
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
) -> Rpc[Answer]:
    """Raises InvalidInput."""
    request = recorder_pb2.CallRequest(
        session_id=session_id,
        request_id=request_id,
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
    return Rpc("Call", request, _answer, limits.LONG_CALL_TIMEOUT_SECONDS)


def close_session(session_id: str) -> Rpc[Account]:
    request = recorder_pb2.CloseSessionRequest(session_id=session_id)
    return Rpc("CloseSession", request, _account)


def get_recording(run_id: str) -> Rpc[Recording]:
    request = recorder_pb2.GetRecordingRequest(run_id=run_id)
    return Rpc("GetRecording", request, lambda answer: _unpacked(answer.recording))


def _session(answer: recorder_pb2.OpenSessionResponse) -> Session:
    recording = _unpacked(answer.recording) if answer.HasField("recording") else None
    return Session(answer.session_id, recording)


def _answer(answer: recorder_pb2.CallResponse) -> Answer:
    value = json.loads(answer.response_json)
    return Answer(
        text=value if isinstance(value, str) else spelled(value),
        source=_SOURCES[answer.source],
        key=answer.key,
        warning=answer.warning,
        fingerprint=answer.fingerprint,
        stored_mode=next((k for k, v in _MODES.items() if v == answer.stored_mode), None),
    )


def _account(answer: recorder_pb2.CloseSessionResponse) -> Account:
    return Account(
        coverage_line=answer.coverage_line,
        hit_count=answer.hit_count,
        miss_count=answer.miss_count,
        strict_violation_count=answer.strict_violation_count,
        unused_calls=tuple(
            UnusedCall(each.line, each.key, each.model) for each in answer.unused_calls
        ),
        unused_count=answer.unused_count,
        recording=_unpacked(answer.recording) if answer.HasField("recording") else None,
    )


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


def _unpacked(recording: recorder_pb2.Recording) -> Recording:
    return Recording(recording.call_count, recording.size_bytes, recording.sha256.hex())
