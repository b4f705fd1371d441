"""`bernstein-recorder SDD_DIR`: wire the recorder and serve it."""

import grpc

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_recorder.exchanges import Exchanges
from bernstein_recorder.kept_answers import KeptAnswers
from bernstein_recorder.providers import Providers
from bernstein_recorder.recorded_index import RecordedIndexes
from bernstein_recorder.recorded_runs import RecordedRuns
from bernstein_recorder.recordings import Recordings
from bernstein_recorder.service import RecorderService
from bernstein_recorder.sessions import Sessions
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.config import RecorderConfig, load_table
from bernstein_runtime.places import make_secrets
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.protection import hide
from bernstein_runtime.server import serve
from bernstein_store.chosen import chosen_store
from bernstein_store.files import FileStore


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    hide()  # sessions bring the providers' keys
    places, clock = started.places, SystemClock()
    config = load_table(RecorderConfig, "recorder", places.state_dir, started.environ)
    store = chosen_store(places, started.environ)
    indexes = RecordedIndexes(store, places.state_dir / "index")
    sessions = Sessions(
        RecordedRuns(store, indexes),
        Recordings(store, clock),
        Providers(config, clock),
        KeptAnswers(store, clock),
        clock,
    )
    exchanges = Exchanges(store, FileStore(make_secrets(places, "recorder")))

    def register(server: grpc.Server) -> str:
        service = RecorderService(sessions, exchanges)
        recorder_pb2_grpc.add_RecorderServiceServicer_to_server(service, server)
        return recorder_pb2.DESCRIPTOR.services_by_name["RecorderService"].full_name

    def finish() -> None:
        sessions.finish()
        exchanges.close()
        store.close()

    serve(started.listener(), register, check=store.check, busy=sessions.busy, finish=finish)


def main() -> None:
    """The command `bernstein-recorder`."""
    service_process("recorder", run)


if __name__ == "__main__":
    main()
