"""RecorderService: unpack, call, pack."""

import re
from collections.abc import Iterator
from itertools import chain

import grpc

from bernstein_api.recorder.v1 import recorder_pb2 as pb
from bernstein_api.recorder.v1 import recorder_pb2_grpc
from bernstein_formats.canonical import JsonValue, check_depth, parse_json_unique
from bernstein_formats.errors import InvalidInput, LimitExceeded, NotAllowed, Unavailable
from bernstein_formats.llm_calls import Caller, CallRequest, literal_value, parameters_digest
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.paths import check_run_id
from bernstein_recorder.answering import Source
from bernstein_recorder.dialect import Provider
from bernstein_recorder.exchanges import Exchanges
from bernstein_recorder.recording import Summary
from bernstein_recorder.sessions import Sessions, Wanted
from bernstein_runtime import limits
from bernstein_runtime.caller import is_private
from bernstein_runtime.status import printable

PARAMETERS_DEPTH_MAX = 128
NAME_CHARACTERS_MAX = 256
_REQUEST_ID = re.compile(rf"[\x21-\x7e]{{1,{limits.REQUEST_ID_CHARACTERS_MAX}}}")
SOURCES = {
    Source.RECORDED: pb.AnswerSource.ANSWER_SOURCE_RECORDED,
    Source.LIVE: pb.AnswerSource.ANSWER_SOURCE_LIVE,
    Source.CACHED: pb.AnswerSource.ANSWER_SOURCE_CACHED,
}
MODES = {
    RuntimeMode.INTERACTIVE: pb.RuntimeMode.RUNTIME_MODE_INTERACTIVE,
    RuntimeMode.HEADLESS_EVAL: pb.RuntimeMode.RUNTIME_MODE_HEADLESS_EVAL,
    RuntimeMode.HEADLESS_REPLAY: pb.RuntimeMode.RUNTIME_MODE_HEADLESS_REPLAY,
    RuntimeMode.HEADLESS_JOB: pb.RuntimeMode.RUNTIME_MODE_HEADLESS_JOB,
    RuntimeMode.CODING_AGENT: pb.RuntimeMode.RUNTIME_MODE_CODING_AGENT,
}


class RecorderService(recorder_pb2_grpc.RecorderServiceServicer):
    """The recorder's API over its sessions and stored exchanges."""

    def __init__(self, sessions: Sessions, exchanges: Exchanges) -> None:
        self._sessions = sessions
        self._exchanges = exchanges

    def OpenSession(
        self, request: pb.OpenSessionRequest, context: grpc.ServicerContext
    ) -> pb.OpenSessionResponse:
        if request.providers and not is_private(context):
            raise NotAllowed("provider keys are taken over a Unix socket or TLS only; set [tls]")
        opened = self._sessions.open(_request_id(request.request_id), _wanted(request))
        replayed = _message(opened.replayed) if opened.replayed else None
        return pb.OpenSessionResponse(session_id=opened.session_id, recording=replayed)

    def Call(self, request: pb.CallRequest, context: grpc.ServicerContext) -> pb.CallResponse:
        lane = _short(request.lane, "lane", limits.LANE_CHARACTERS_MAX)
        caller = Caller(lane, _request_id(request.request_id), _purpose(request))
        served = self._sessions.call(request.session_id, _call(request), caller)
        return pb.CallResponse(
            response_json=served.response_json,
            source=SOURCES[served.source],
            key=served.key,
            warning=printable(served.warning),
            fingerprint=served.fingerprint,
            stored_mode=MODES[served.stored_mode]
            if served.stored_mode
            else pb.RuntimeMode.RUNTIME_MODE_UNSPECIFIED,
        )

    def CloseSession(
        self, request: pb.CloseSessionRequest, context: grpc.ServicerContext
    ) -> pb.CloseSessionResponse:
        account = self._sessions.close(request.session_id)
        return pb.CloseSessionResponse(
            coverage_line=account.coverage_line,
            hit_count=account.hit_count,
            miss_count=account.miss_count,
            strict_violation_count=account.strict_violation_count,
            unused_calls=[
                pb.UnusedCall(
                    line=each.line,
                    key=printable(each.key[:NAME_CHARACTERS_MAX]),
                    model=printable(each.model[:NAME_CHARACTERS_MAX]),
                )
                for each in account.unused_calls
            ],
            unused_count=account.unused_count,
            recording=_message(account.recording),
        )

    def GetRecording(
        self, request: pb.GetRecordingRequest, context: grpc.ServicerContext
    ) -> pb.GetRecordingResponse:
        check_run_id(request.run_id)
        return pb.GetRecordingResponse(
            recording=_message(self._sessions.recording_of(request.run_id))
        )

    def AppendCalls(
        self, request: pb.AppendCallsRequest, context: grpc.ServicerContext
    ) -> pb.AppendCallsResponse:
        check_run_id(request.run_id)
        if len(request.data) > limits.PIECE_BYTES_MAX:
            raise LimitExceeded(
                f"{len(request.data)} bytes of calls: send {limits.PIECE_BYTES_MAX} at a time",
                field="data",
            )
        prefix = request.prefix_sha256 if request.HasField("prefix_sha256") else None
        return pb.AppendCallsResponse(
            size_bytes=self._sessions.append_verbatim(
                request.run_id, request.data, request.start_offset, prefix
            )
        )

    def RecordExchanges(
        self, request_iterator: Iterator[pb.RecordExchangesRequest], context: grpc.ServicerContext
    ) -> pb.RecordExchangesResponse:
        first = next(request_iterator, None)
        if first is None:
            raise InvalidInput("an empty stream names no run", field="run_id")
        check_run_id(first.run_id)
        request_id = _request_id(first.request_id)
        bodies, lines = _bodies_and_lines(first, request_iterator)
        size = self._exchanges.record(first.run_id, request_id, bodies, lines)
        return pb.RecordExchangesResponse(size_bytes=size)

    def ReadExchanges(
        self, request: pb.ReadExchangesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ReadExchangesResponse]:
        check_run_id(request.run_id)
        for data in self._exchanges.read(request.run_id):
            yield pb.ReadExchangesResponse(data=data)

    def ReadBodies(
        self, request: pb.ReadBodiesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ReadBodiesResponse]:
        check_run_id(request.run_id)
        for sha256 in request.sha256s:
            body = self._exchanges.body(request.run_id, sha256)
            for at in range(0, len(body), limits.PIECE_BYTES_MAX):
                yield pb.ReadBodiesResponse(data=body[at : at + limits.PIECE_BYTES_MAX])


def _bodies_and_lines(
    first: pb.RecordExchangesRequest, rest: Iterator[pb.RecordExchangesRequest]
) -> tuple[dict[str, bytes], list[bytes]]:
    """A stream that breaks off keeps nothing."""
    pieces: dict[str, list[bytes]] = {}
    lines: list[bytes] = []
    try:
        for message in chain([first], rest):
            for piece in message.pieces:
                pieces.setdefault(piece.sha256.hex(), []).append(piece.data)
            lines += message.lines
    except grpc.RpcError as error:
        raise Unavailable("the caller went away while it sent exchanges") from error
    return {digest: b"".join(parts) for digest, parts in pieces.items()}, lines


def _wanted(request: pb.OpenSessionRequest) -> Wanted:
    expected = request.expected if request.HasField("expected") else None
    return Wanted(
        run_id=request.run_id,
        replay_run_id=request.replay_run_id,
        allow_live_miss=request.allow_live_miss,
        record=request.record,
        providers=tuple(
            Provider(each.name, each.base_url, each.api_key) for each in request.providers
        ),
        expected=Summary(expected.call_count, expected.size_bytes, expected.sha256)
        if expected
        else None,
        mode=_mode(request.mode),
        seed=request.seed if request.HasField("seed") else None,
        agent_version=_short(request.agent_version, "agent_version", NAME_CHARACTERS_MAX),
    )


def _mode(number: int) -> RuntimeMode | None:
    if number == pb.RuntimeMode.RUNTIME_MODE_UNSPECIFIED:
        return None
    found = next((mode for mode, each in MODES.items() if each == number), None)
    if found is None:
        raise InvalidInput(f"{number} is no mode that this recorder knows", field="mode")
    return found


def _purpose(request: pb.CallRequest) -> dict[str, JsonValue]:
    given = {
        name: _short(text, name, NAME_CHARACTERS_MAX)
        for name, text in (("call_class", request.call_class), ("family", request.family))
    }
    return {name: text for name, text in given.items() if text}


def _call(request: pb.CallRequest) -> CallRequest:
    """The call, with everything refused now that could fail after a model was paid for."""
    call = CallRequest(
        model=_short(request.model, "model", NAME_CHARACTERS_MAX),
        prompt=_prompt(request.prompt),
        provider=_short(request.provider, "provider", NAME_CHARACTERS_MAX),
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        parameters=_parameters(request.parameters_json),
    )
    literal_value(call.temperature, "temperature")
    literal_value(call.max_tokens, "max_tokens")
    parameters_digest(call.parameters)
    return call


def _prompt(data: bytes) -> str:
    if len(data) > limits.PROMPT_BYTES_MAX:
        raise LimitExceeded(
            f"the prompt has {len(data)} bytes; {limits.PROMPT_BYTES_MAX} is the most",
            field="prompt",
            limit=limits.PROMPT_BYTES_MAX,
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the prompt is not UTF-8 at byte {error.start} (half a character, perhaps):"
            " cut text between whole characters only",
            field="prompt",
            offset=error.start,
        ) from error


def _parameters(data: bytes) -> dict[str, JsonValue]:
    if not data:
        return {}
    try:
        parsed = parse_json_unique(data)
        check_depth(parsed, PARAMETERS_DEPTH_MAX)
    except InvalidInput as error:
        raise type(error)(f"parameters_json: {error.message}", field="parameters_json") from error
    if not isinstance(parsed, dict):
        raise InvalidInput("parameters_json must be a JSON object", field="parameters_json")
    return parsed


def _request_id(text: str) -> str:
    if not _REQUEST_ID.fullmatch(text):
        raise InvalidInput(
            f"request_id must be 1 to {limits.REQUEST_ID_CHARACTERS_MAX} visible ASCII characters",
            field="request_id",
        )
    return text


def _short(text: str, field: str, limit: int) -> str:
    if len(text) > limit:
        raise LimitExceeded(
            f"{field} has {len(text)} characters; {limit} is the most", field=field, limit=limit
        )
    return text


def _message(summary: Summary) -> pb.Recording:
    return pb.Recording(
        call_count=summary.call_count, size_bytes=summary.size_bytes, sha256=summary.sha256
    )
