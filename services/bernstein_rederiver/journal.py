"""The rederiver's way to the journal: it reads stored rows there, and owns none."""

from collections.abc import Iterator

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_runtime import limits
from bernstein_runtime.channel import open_channel
from bernstein_runtime.places import Places
from bernstein_runtime.status import error_from
from bernstein_runtime.supervisor import Supervisor


class Journal:
    """Opens a channel a read: reads are long and rare."""

    def __init__(self, places: Places, supervisor: Supervisor) -> None:
        self._places = places
        self._supervisor = supervisor

    def read(self, run_id: str) -> tuple[str, Iterator[bytes]]:
        """The run that is meant, and its journal's stored bytes. Raises RunNotFound."""
        self._supervisor.ensure("journal")
        channel = open_channel(self._places.socket("journal"))
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
