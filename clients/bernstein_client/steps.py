"""Agents' step journals, as programs see them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_runtime import limits


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an agent: what went in, what was called, what came back."""

    # SHA-256 of the input, lower-case hexadecimal.
    input_hash: str
    model: str | None = None
    prompt: str | None = None
    tool_call: JsonValue = None
    tool_result: JsonValue = None
    effort: str | None = None
    # Digests of content in the blob store.
    blob_refs: tuple[str, ...] = ()

    def json_text(self) -> str:
        """The step as it is sent."""
        return spelled(
            {
                "input_hash": self.input_hash,
                "model": self.model,
                "prompt": self.prompt,
                "tool_call": self.tool_call,
                "tool_result": self.tool_result,
                "effort": self.effort,
                "blob_refs": list(self.blob_refs),
            }
        )


@dataclass(frozen=True, slots=True)
class AppendedSteps:
    """Where steps landed."""

    first_seq: int
    head_hash_hex: str
    step_count: int


class StepsClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = journal_pb2_grpc.JournalServiceStub(connection.channel)

    def start(self, agent_id: str, steps: Sequence[Step]) -> AppendedSteps:
        """Begin a session with its first steps. Raises RunExists when it has steps."""
        return self._append(journal_pb2.AppendStepsRequest(agent_id=agent_id, start=True), steps)

    def append(
        self, agent_id: str, steps: Sequence[Step], expected_head_hex: str | None = None
    ) -> AppendedSteps:
        """Append steps, all or none; they are durable when this returns.

        Raises NotFound for a session that never began, and HeadMoved when another step than the
        expected one is last.
        """
        head = None if expected_head_hex is None else bytes.fromhex(expected_head_hex)
        request = journal_pb2.AppendStepsRequest(agent_id=agent_id, expected_head_hash=head)
        return self._append(request, steps)

    def read(self, agent_id: str, start_offset: int = 0) -> Iterator[bytes]:
        """The stored bytes in parts. Raises NotFound."""
        request = journal_pb2.ReadStepsRequest(agent_id=agent_id, start_offset=start_offset)
        for part in self._connection.stream(self._stub.ReadSteps, request):
            yield part.data

    def append_rows(
        self, agent_id: str, start_offset: int, data: bytes, prefix_sha256: bytes | None = None
    ) -> int:
        """Append stored lines verbatim; gives the file's size.

        Raises HeadMoved where the bytes before them are not what `prefix_sha256` says.
        """
        request = journal_pb2.AppendStepRowsRequest(
            agent_id=agent_id, start_offset=start_offset, data=data, prefix_sha256=prefix_sha256
        )
        return self._connection.call(
            self._stub.AppendStepRows, request, "AppendStepRows"
        ).size_bytes

    def import_blob(self, agent_id: str, digest: str, read: Callable[[], Iterator[bytes]]) -> bool:
        """Store a blob of a session; whether it was new. `read` gives its bytes, from the start.

        Raises NotFound for a session that is not there, InvalidInput for other bytes.
        """

        def pieces() -> Iterator[journal_pb2.ImportBlobRequest]:
            yield journal_pb2.ImportBlobRequest(agent_id=agent_id, digest=digest)
            for data in read():
                yield journal_pb2.ImportBlobRequest(data=data)

        answer = self._connection.call(
            lambda _, timeout: self._stub.ImportBlob(pieces(), timeout=timeout),
            None,
            "ImportBlob",
            limits.LONG_CALL_TIMEOUT_SECONDS,
        )
        return answer.is_new

    def _append(
        self, request: journal_pb2.AppendStepsRequest, steps: Sequence[Step]
    ) -> AppendedSteps:
        request.request_id = self._connection.request_id()
        request.steps_json.extend(step.json_text().encode() for step in steps)
        answer = self._connection.call(self._stub.AppendSteps, request, "AppendSteps")
        return AppendedSteps(answer.first_seq, answer.head_hash.hex(), answer.step_count)
