"""`bernstein-journal SDD_DIR`: wire the journal and serve it."""

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_journal.creation import RunMaker
from bernstein_journal.losses import Losses
from bernstein_journal.macs import Macs
from bernstein_journal.readiness import readiness
from bernstein_journal.receipts import ReceiptMaker
from bernstein_journal.sealing import Sealer
from bernstein_journal.service import JournalService
from bernstein_journal.signer import Signer, resident_signer
from bernstein_journal.spine_seal import SpineSealer
from bernstein_journal.steps import StepJournals
from bernstein_journal.verbatim import VerbatimLogs
from bernstein_journal.verification import Verifier
from bernstein_journal.watchers import Watchers
from bernstein_journal.witnesses import Witnesses
from bernstein_journal.writer import Writer
from bernstein_runtime import limits
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.origin import origin_of
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.server import serve
from bernstein_store.chosen import chosen_store


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    places = started.places
    store, clock = chosen_store(places, started.environ), SystemClock()
    origin = origin_of(places, started.environ)
    connector = started.connector()

    def signer() -> Signer:
        return resident_signer(connector, started.token)

    seal_key_file = places.secrets_dir / "seal-key.pub.pem"
    sealer = Sealer(store, origin, signer, seal_key_file)
    macs = Macs(store, clock, signer)
    witnesses = Witnesses(store, origin, places.secrets_dir / "signer" / "ledger.jsonl", signer)
    verifier = Verifier(store, seal_key_file, witnesses)
    writer, verbatim = Writer(store, clock), VerbatimLogs(store)
    steps = StepJournals(store, clock)
    watchers = Watchers(store)
    service = JournalService(
        places=places,
        store=store,
        writer=writer,
        maker=RunMaker(store, clock, readiness(places, store, sealer.check_ledger)),
        verifier=verifier,
        sealer=sealer,
        spine_sealer=SpineSealer(store, clock, macs.pending),
        macs=macs,
        receipts=ReceiptMaker(store, places.state_dir, origin, sealer, verifier.sealed),
        verbatim=verbatim,
        steps=steps,
        resident_signer=signer,
        watchers=watchers,
        losses=Losses(store, clock, macs),
    )

    def register(server: grpc.Server) -> str:
        journal_pb2_grpc.add_JournalServiceServicer_to_server(service, server)
        return journal_pb2.DESCRIPTOR.services_by_name["JournalService"].full_name

    try:
        serve(
            started.listener(),
            register,
            check=store.check,
            streams_max=limits.WATCHERS_MAX,
            end_streams=watchers.stop,
        )
    finally:
        writer.stop()
        macs.pending.stop()
        verbatim.close()
        steps.close()
        store.close()


def main() -> None:
    """The command `bernstein-journal`."""
    service_process("journal", run)


if __name__ == "__main__":
    main()
