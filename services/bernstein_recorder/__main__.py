"""`bernstein-recorder STATE_FOLDER`: wire the recorder and serve it."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_recorder.wiring import RecorderWiring, Shared
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.config import RecorderConfig, load_table
from bernstein_runtime.origin import origin_of
from bernstein_runtime.per_origin import PerOrigin
from bernstein_runtime.places import make_secrets
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.protection import hide
from bernstein_runtime.server import serve
from bernstein_store.chosen import chosen_stores
from bernstein_store.files import FileStore
from bernstein_store.run_records import RunRecords


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    hide()  # sessions bring the providers' keys
    places = started.places
    shared = Shared(
        own=origin_of(places, started.environ),
        stores=chosen_stores(places, started.environ),
        config=load_table(RecorderConfig, "recorder", places.state_dir, started.environ),
        clock=SystemClock(),
        indexes=places.state_dir / "index",
        quarantine=make_secrets(places, "recorder"),
    )

    def wire(origin: str) -> RecorderWiring:
        quarantine = FileStore(shared.below(shared.quarantine, origin))
        return RecorderWiring(shared, origin, quarantine)

    origins = PerOrigin(shared.own, wire)

    @contextmanager
    def records(origin: str) -> Iterator[RunRecords]:
        with origins.using(origin) as wiring:
            yield wiring.records

    def register(server: grpc.Server) -> str:
        recorder_pb2_grpc.add_RecorderServiceServicer_to_server(origins.servicer, server)
        return recorder_pb2.DESCRIPTOR.services_by_name["RecorderService"].full_name

    def finish() -> None:
        origins.close()
        shared.stores.close()

    serve(
        started.listener(),
        register,
        check=origins.check,
        facts=shared.stores.facts,
        busy=origins.busy,
        finish=finish,
        records=records,
    )


def main() -> None:
    """The command `bernstein-recorder`."""
    service_process("recorder", run)


if __name__ == "__main__":
    main()
