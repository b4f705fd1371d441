"""The journal's parts for one origin, put together."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bernstein_journal.creation import RunMaker
from bernstein_journal.ledger_view import FleetLedger, LedgerView, OwnLedger
from bernstein_journal.losses import Losses
from bernstein_journal.macs import Macs
from bernstein_journal.quarantine import Quarantine
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
from bernstein_runtime.clock import Clock
from bernstein_runtime.connector import Connector, FleetConnector
from bernstein_runtime.places import Places
from bernstein_store.run_records import RunRecords
from bernstein_store.store import Stores


@dataclass(frozen=True, slots=True)
class Shared:
    """What all origins of a process share."""

    places: Places
    stores: Stores
    connector: Connector
    # What a project's own signer wants to be shown.
    token: bytes
    clock: Clock
    syncing: ThreadPoolExecutor
    streams: threading.Semaphore


class JournalWiring:
    """See `bernstein_runtime.per_origin.Wiring`."""

    def __init__(self, shared: Shared, origin: str) -> None:
        places, clock = shared.places, shared.clock
        connector = shared.connector.for_origin(origin)
        self._store = store = shared.stores.of(origin)
        self.records = RunRecords(store, "journal", clock)

        def signer() -> Signer:
            return resident_signer(connector, shared.token)

        ledger: LedgerView = OwnLedger(places)
        if isinstance(connector, FleetConnector):
            ledger = FleetLedger(origin, signer)
        sealer = Sealer(store, origin, signer, ledger)
        self._macs = macs = Macs(store, clock, signer)
        verifier = Verifier(store, ledger, Witnesses(store, origin, ledger, signer))
        self._writer = Writer(store, clock, shared.syncing)
        self._verbatim = VerbatimLogs(store)
        self._steps = StepJournals(store, clock)
        self._watchers = Watchers(store, shared.streams)
        self.servicer = JournalService(
            places=places,
            store=store,
            writer=self._writer,
            maker=RunMaker(store, clock, readiness(places, store, ledger, sealer.check_ledger)),
            verifier=verifier,
            sealer=sealer,
            spine_sealer=SpineSealer(store, clock, macs.pending),
            macs=macs,
            receipts=ReceiptMaker(store, places.state_dir, origin, sealer, verifier.sealed),
            verbatim=self._verbatim,
            steps=self._steps,
            resident_signer=signer,
            watchers=self._watchers,
            losses=Losses(store, clock, macs),
            quarantine=Quarantine(self.records, macs, clock),
        )

    def check(self) -> None:
        self._store.check()

    def busy(self) -> bool:
        return False

    def end_streams(self) -> None:
        self._watchers.stop()

    def close(self) -> None:
        self._writer.stop()
        self._macs.pending.stop()
        self._verbatim.close()
        self._steps.close()
        self._store.close()
