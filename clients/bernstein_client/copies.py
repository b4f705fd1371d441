"""Whole runs out of a store and into one, as programs see it."""

from collections.abc import Callable, Iterator

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_runtime import limits


class CopiesClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = journal_pb2_grpc.JournalServiceStub(connection.channel)

    def export_run(self, run_id: str) -> Iterator[tuple[str, bytes]]:
        """The files of a run in pieces; the name comes with each. Raises RunNotFound."""
        name = ""
        request = journal_pb2.ExportRunRequest(run_id=run_id)
        for part in self._connection.stream(self._stub.ExportRun, request):
            name = part.name or name
            yield name, part.data

    def import_file(self, run_id: str, name: str, read: Callable[[], Iterator[bytes]]) -> bool:
        """Store a file of a run as it is; whether it was not there. Raises RunExists.

        `read` gives its bytes, and again when the call has to be tried again.
        """

        def pieces() -> Iterator[journal_pb2.ImportFileRequest]:
            yield journal_pb2.ImportFileRequest(run_id=run_id, name=name)
            for data in read():
                yield journal_pb2.ImportFileRequest(data=data)

        answer = self._connection.call(
            lambda _, timeout: self._stub.ImportFile(pieces(), timeout=timeout),
            None,
            "ImportFile",
            limits.LONG_CALL_TIMEOUT_SECONDS,
        )
        return answer.is_new
