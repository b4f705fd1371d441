"""`python -m bernstein_journal SDD_DIR`: wire the journal and serve it."""

import os
import sys
from pathlib import Path

import grpc
import structlog

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_formats.errors import BernsteinError
from bernstein_journal.creation import RunMaker
from bernstein_journal.origin import origin_of
from bernstein_journal.receipts import ReceiptMaker
from bernstein_journal.sealing import Sealer
from bernstein_journal.service import JournalService
from bernstein_journal.signer import Signer, resident_signer
from bernstein_journal.verbatim import VerbatimLogs
from bernstein_journal.verification import Verifier
from bernstein_journal.writer import Writer
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.config import SupervisorConfig, load_table
from bernstein_runtime.lock import LockFile
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.places import make_state, places_for
from bernstein_runtime.server import Listener, serve
from bernstein_runtime.supervisor import supervisor_for
from bernstein_store.files import FileStore


def run() -> None:
    """Until stopped or idle. Raises BernsteinError."""
    places = places_for(Path(sys.argv[1]), os.environ)
    token = sys.stdin.readline().strip().encode()
    make_state(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, os.environ)
    with LockFile(places.state_dir / "journal.lock"):
        store, clock, origin = FileStore(places.sdd_dir), SystemClock(), origin_of(places.sdd_dir)

        def signer() -> Signer:
            return resident_signer(places, supervisor_for(places), token)

        sealer = Sealer(store, origin, signer)
        writer = Writer(store, clock)
        service = JournalService(
            places=places,
            store=store,
            writer=writer,
            maker=RunMaker(store, clock),
            verifier=Verifier(store, places.sdd_dir, places.secrets_dir / "seal-key.pub.pem"),
            sealer=sealer,
            receipts=ReceiptMaker(store, places.state_dir, origin, sealer),
            verbatim=VerbatimLogs(store),
            resident_signer=signer,
        )

        def register(server: grpc.Server) -> str:
            journal_pb2_grpc.add_JournalServiceServicer_to_server(service, server)
            return journal_pb2.DESCRIPTOR.services_by_name["JournalService"].full_name

        try:
            serve(Listener(places.socket("journal"), config.idle_seconds), register)
        finally:
            writer.stop()


def main() -> None:
    """The command `bernstein-journal`."""
    configure_logs("journal")
    try:
        run()
    except BernsteinError as error:
        structlog.get_logger().error("refused", reason=error.reason, error=error.message)
        sys.exit(1)


if __name__ == "__main__":
    main()
