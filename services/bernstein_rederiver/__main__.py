"""`python -m bernstein_rederiver SDD_DIR`: wire the rederiver and serve it."""

import os
import sys
from pathlib import Path

import grpc
import structlog

from bernstein_api.rederiver.v1 import rederiver_pb2, rederiver_pb2_grpc
from bernstein_formats.errors import BernsteinError
from bernstein_rederiver.journal import Journal
from bernstein_rederiver.service import RederiverService
from bernstein_runtime.config import SupervisorConfig, load_table
from bernstein_runtime.lock import LockFile
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.places import make_state, places_for
from bernstein_runtime.server import Listener, serve
from bernstein_runtime.supervisor import supervisor_for


def run() -> None:
    """Until stopped or idle. Raises BernsteinError."""
    places = places_for(Path(sys.argv[1]), os.environ)
    make_state(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, os.environ)
    service = RederiverService(Journal(places, supervisor_for(places)))

    def register(server: grpc.Server) -> str:
        rederiver_pb2_grpc.add_RederiverServiceServicer_to_server(service, server)
        return rederiver_pb2.DESCRIPTOR.services_by_name["RederiverService"].full_name

    with LockFile(places.state_dir / "rederiver.lock"):
        serve(Listener(places.socket("rederiver"), config.idle_seconds), register)


def main() -> None:
    """The command `bernstein-rederiver`."""
    configure_logs("rederiver")
    try:
        run()
    except BernsteinError as error:
        structlog.get_logger().error("refused", reason=error.reason, error=error.message)
        sys.exit(1)


if __name__ == "__main__":
    main()
