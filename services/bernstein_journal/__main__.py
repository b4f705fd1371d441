"""`bernstein-journal STATE_FOLDER`: wire the journal and serve it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_journal.wiring import JournalWiring, Shared
from bernstein_journal.writer import syncing_threads
from bernstein_runtime import limits
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.origin import origin_of
from bernstein_runtime.per_origin import PerOrigin
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.server import serve
from bernstein_store.chosen import chosen_stores
from bernstein_store.run_records import RunRecords


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    shared = Shared(
        places=started.places,
        stores=chosen_stores(started.places, started.environ),
        connector=started.connector(),
        token=started.token,
        clock=SystemClock(),
        syncing=syncing_threads(),
        streams=threading.Semaphore(limits.WATCHERS_MAX),
    )
    own = origin_of(started.places, started.environ)
    origins = PerOrigin(own, lambda origin: JournalWiring(shared, origin))

    @contextmanager
    def records(origin: str) -> Iterator[RunRecords]:
        with origins.using(origin) as wiring:
            yield wiring.records

    def register(server: grpc.Server) -> str:
        journal_pb2_grpc.add_JournalServiceServicer_to_server(origins.servicer, server)
        return journal_pb2.DESCRIPTOR.services_by_name["JournalService"].full_name

    try:
        serve(
            started.listener(),
            register,
            check=origins.check,
            facts=shared.stores.facts,
            streams_max=limits.WATCHERS_MAX,
            end_streams=origins.end_streams,
            records=records,
        )
    finally:
        origins.close()
        shared.syncing.shutdown()
        shared.connector.close()
        shared.stores.close()


def main() -> None:
    """The command `bernstein-journal`."""
    service_process("journal", run)


if __name__ == "__main__":
    main()
