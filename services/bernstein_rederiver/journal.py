"""The rederiver's way to the journal: it reads stored rows there, and owns none."""

from collections.abc import Iterator

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_runtime import limits
from bernstein_runtime.connector import Connector
from bernstein_runtime.status import error_from


class Journal:
    """Opens a channel a read: reads are long and rare."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def read(self, run_id: str) -> tuple[str, Iterator[bytes]]:
        """The run that is meant, and its journal's stored bytes. Raises RunNotFound."""
        self._connector.ensure("journal")
        channel = self._connector.open("journal")
        answers = journal_pb2_grpc.JournalServiceStub(channel).ReadJournal(
            journal_pb2.ReadJournalRequest(run_id=run_id),
            timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
        )
        parts = _parts(answers, channel)
        return next(parts).run_id, (part.data for part in parts)


def _parts(
    answers: Iterator[journal_pb2.ReadJournalResponse], channel: grpc.Channel
) -> Iterator[journal_pb2.ReadJournalResponse]:
    try:
        yield from answers
    except grpc.RpcError as failure:
        raise error_from(failure) from None
    finally:
        channel.close()
