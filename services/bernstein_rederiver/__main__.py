"""`bernstein-rederiver STATE_FOLDER`: wire the rederiver and serve it."""

import grpc

from bernstein_api.rederiver.v1 import rederiver_pb2, rederiver_pb2_grpc
from bernstein_rederiver.journal import Journal
from bernstein_rederiver.service import RederiverService
from bernstein_runtime.connector import Connector
from bernstein_runtime.origin import origin_of
from bernstein_runtime.per_origin import PerOrigin
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.server import serve


class RederiverWiring:
    """See `bernstein_runtime.per_origin.Wiring`. It keeps nothing."""

    def __init__(self, connector: Connector) -> None:
        self.servicer = RederiverService(Journal(connector))

    def check(self) -> None:
        """It stores nothing."""

    def busy(self) -> bool:
        return False

    def end_streams(self) -> None:
        """They end."""

    def close(self) -> None:
        """Nothing is open."""


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    connector = started.connector()
    own = origin_of(started.places, started.environ)
    origins = PerOrigin(own, lambda origin: RederiverWiring(connector.for_origin(origin)))

    def register(server: grpc.Server) -> str:
        rederiver_pb2_grpc.add_RederiverServiceServicer_to_server(origins.servicer, server)
        return rederiver_pb2.DESCRIPTOR.services_by_name["RederiverService"].full_name

    try:
        serve(started.listener(), register)
    finally:
        connector.close()


def main() -> None:
    """The command `bernstein-rederiver`."""
    service_process("rederiver", run)


if __name__ == "__main__":
    main()
