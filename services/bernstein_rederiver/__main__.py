"""`bernstein-rederiver SDD_DIR`: wire the rederiver and serve it."""

import grpc

from bernstein_api.rederiver.v1 import rederiver_pb2, rederiver_pb2_grpc
from bernstein_rederiver.journal import Journal
from bernstein_rederiver.service import RederiverService
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.server import serve


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    service = RederiverService(Journal(started.connector()))

    def register(server: grpc.Server) -> str:
        rederiver_pb2_grpc.add_RederiverServiceServicer_to_server(service, server)
        return rederiver_pb2.DESCRIPTOR.services_by_name["RederiverService"].full_name

    serve(started.listener(), register)


def main() -> None:
    """The command `bernstein-rederiver`."""
    service_process("rederiver", run)


if __name__ == "__main__":
    main()
