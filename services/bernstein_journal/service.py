"""JournalService: unpack, call, pack."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import grpc

from bernstein_api.journal.v1 import journal_pb2
from bernstein_formats import paths
from bernstein_formats.audit_range import AuditWindow
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_formats.journal_diff import diff_journals
from bernstein_formats.journal_verify import rebuild_state
from bernstein_formats.run_choice import LATEST
from bernstein_journal.care_service import CareCalls
from bernstein_journal.copies import Copies
from bernstein_journal.creation import RunMaker
from bernstein_journal.long_events import long_event
from bernstein_journal.losses import Losses
from bernstein_journal.mac_service import MacCalls
from bernstein_journal.macs import Macs
from bernstein_journal.quarantine import Quarantine
from bernstein_journal.receipts import Receipt, ReceiptMaker, Wanted
from bernstein_journal.repair import Repairer
from bernstein_journal.requests import check_request_id
from bernstein_journal.retention import Pruner, Reading
from bernstein_journal.run_log import Append, Appended
from bernstein_journal.runs import RunFacts, Runs
from bernstein_journal.sealing import Sealer
from bernstein_journal.signer import Signer, once_signer
from bernstein_journal.spine_seal import SpineSealer
from bernstein_journal.step_events import StepEvents
from bernstein_journal.step_service import StepCalls, piece_of
from bernstein_journal.steps import StepJournals
from bernstein_journal.verbatim import VerbatimLogs
from bernstein_journal.verification import RunVerification, Verifier
from bernstein_journal.watchers import Watchers
from bernstein_journal.writer import Writer
from bernstein_runtime import limits
from bernstein_runtime.places import Places
from bernstein_runtime.progress import Done, Report, with_progress
from bernstein_store.store import Store

PAGE_SIZE, PAGE_SIZE_MAX = 100, 1000
PARTS = {
    journal_pb2.ROW_KIND_JOURNAL: paths.journal_path,
    journal_pb2.ROW_KIND_SPINE: paths.spine_path,
}


class JournalService(MacCalls, StepCalls, CareCalls):
    """Each method is one call of the contract, described there."""

    def __init__(
        self,
        *,
        places: Places,
        store: Store,
        writer: Writer,
        maker: RunMaker,
        verifier: Verifier,
        sealer: Sealer,
        spine_sealer: SpineSealer,
        macs: Macs,
        receipts: ReceiptMaker,
        verbatim: VerbatimLogs,
        steps: StepJournals,
        resident_signer: Callable[[], Signer],
        watchers: Watchers,
        losses: Losses,
        quarantine: Quarantine,
    ) -> None:
        self._places = places
        self._store = store
        self._runs = Runs(store)
        self._writer = writer
        self._maker = maker
        self._verifier = verifier
        self._sealer = sealer
        self._spine_sealer = spine_sealer
        self._macs = macs
        self._receipts = receipts
        self._verbatim = verbatim
        self._steps = steps
        self._step_events = StepEvents(macs)
        self._resident_signer = resident_signer
        self._watchers = watchers
        self._reading = Reading()
        self._pruner = Pruner(store, self._runs, self._reading, verifier.is_as_sealed)
        self._repairer = Repairer(store)
        self._losses = losses
        self._quarantine = quarantine
        self._copies = Copies(store)

    def CreateRun(
        self, request: journal_pb2.CreateRunRequest, context: grpc.ServicerContext
    ) -> journal_pb2.CreateRunResponse:
        check_request_id(request.request_id)
        run_id = self._maker.make(
            request.run_id, request.request_id, request.metadata_json, request.replay_json
        )
        return journal_pb2.CreateRunResponse(run_id=run_id)

    def AppendEvents(
        self, request: journal_pb2.AppendEventsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendEventsResponse:
        check_request_id(request.request_id)
        if not 1 <= len(request.events) <= limits.BATCH_EVENTS_MAX:
            raise LimitExceeded(
                f"{len(request.events)} events; a request takes 1 to {limits.BATCH_EVENTS_MAX}"
            )
        expected = (
            request.expected_head_hash.hex() if request.HasField("expected_head_hash") else None
        )
        events = [(event.event, event.payload_json) for event in request.events]
        appended = self._writer.append(Append(request.run_id, events, request.request_id, expected))
        return journal_pb2.AppendEventsResponse(**_landed(appended))

    def AppendLongEvent(
        self,
        request_iterator: Iterator[journal_pb2.AppendLongEventRequest],
        context: grpc.ServicerContext,
    ) -> journal_pb2.AppendLongEventResponse:
        first = next(request_iterator, journal_pb2.AppendLongEventRequest())
        parts = (each.data for each in chain([first], request_iterator))
        wanted = first.run_id, first.event, first.request_id, first.sha256
        appended = self._writer.append(long_event(*wanted, parts))
        return journal_pb2.AppendLongEventResponse(**_landed(appended))

    def AppendRows(
        self, request: journal_pb2.AppendRowsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AppendRowsResponse:
        if request.kind not in PARTS:
            raise InvalidInput("say which file the rows belong to: kind is not set", field="kind")
        paths.check_run_id(request.run_id)
        name = PARTS[request.kind](request.run_id)
        size = self._verbatim.append(request.run_id, name, piece_of(request))
        return journal_pb2.AppendRowsResponse(size_bytes=size)

    def FinishRun(
        self, request: journal_pb2.FinishRunRequest, context: grpc.ServicerContext
    ) -> journal_pb2.FinishRunResponse:
        run_id = self._runs.resolve(request.run_id)
        with self._writer.finishing(run_id):
            seal = self._sealer.finish(run_id)
            note = ""
            if not request.without_spine_seal:
                note = self._spine_sealer.seal(run_id, seal.entry.body.head_hash)
        body = seal.entry.body
        return journal_pb2.FinishRunResponse(
            head_hash=bytes.fromhex(body.head_hash),
            row_count=body.event_count,
            seal_json=seal.file_bytes(),
            notes=[note] if note else [],
        )

    def BeginLedger(
        self, request: journal_pb2.BeginLedgerRequest, context: grpc.ServicerContext
    ) -> journal_pb2.BeginLedgerResponse:
        self._sealer.begin_ledger()
        return journal_pb2.BeginLedgerResponse()

    def GetRun(
        self, request: journal_pb2.GetRunRequest, context: grpc.ServicerContext
    ) -> journal_pb2.GetRunResponse:
        return journal_pb2.GetRunResponse(run=self._packed(self._runs.facts(request.run_id)))

    def ListRuns(
        self, request: journal_pb2.ListRunsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.ListRunsResponse:
        size = min(request.page_size or PAGE_SIZE, PAGE_SIZE_MAX)
        page, next_token = self._runs.page(request.page_token, size)
        runs: list[journal_pb2.Run] = []
        room = limits.PIECE_BYTES_MAX
        for run_id in page:
            packed = self._packed(self._runs.listed(run_id))
            room -= packed.ByteSize()
            if runs and room < 0:
                return journal_pb2.ListRunsResponse(runs=runs, next_page_token=run_id)
            runs.append(packed)
        return journal_pb2.ListRunsResponse(runs=runs, next_page_token=next_token)

    def ReadJournal(
        self, request: journal_pb2.ReadJournalRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.ReadJournalResponse]:
        run_id = self._runs.resolve(request.run_id)
        yield journal_pb2.ReadJournalResponse(run_id=run_id)
        name = paths.journal_path(run_id)
        with self._reading.of(run_id):
            for chunk in self._store.read(name, request.start_offset, self._store.size(name)):
                yield journal_pb2.ReadJournalResponse(data=chunk)

    def VerifyRun(
        self, request: journal_pb2.VerifyRunRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.VerifyRunResponse]:
        run_id = self._runs.resolve(request.run_id)

        def work(report: Report) -> RunVerification:
            with self._reading.of(run_id):
                return self._verifier.verify(run_id, request.run_id, report)

        for item in with_progress(work):
            if isinstance(item, Done):
                yield journal_pb2.VerifyRunResponse(progress=_progress(item))
            else:
                yield journal_pb2.VerifyRunResponse(verification=_verification(item.value))

    def RebuildState(
        self, request: journal_pb2.RebuildStateRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.RebuildStateResponse]:
        run_id = self._runs.resolve(request.run_id)
        with self._reading.of(run_id):
            state = rebuild_state(self._store.read(paths.journal_path(run_id)), request.from_step)
        text = json.dumps(asdict(state), sort_keys=True).encode()  # noqa: TID251 - a view, not evidence
        yield journal_pb2.RebuildStateResponse(run_id=run_id)
        for start in range(0, len(text), limits.CHUNK_BYTES):
            piece = text[start : start + limits.CHUNK_BYTES]
            yield journal_pb2.RebuildStateResponse(state_json=piece)

    def DiffRuns(
        self, request: journal_pb2.DiffRunsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.DiffRunsResponse:
        a, b = (self._log_to_compare(each) for each in (request.run_id_a, request.run_id_b))
        found = diff_journals(self._store.read(a), self._store.read(b))
        rows, notes = [_row_json(found.a_event), _row_json(found.b_event)], [*found.notes]
        if (size := sum(map(len, rows))) > limits.PIECE_BYTES_MAX:
            notes.append(f"the rows have {size} bytes, more than an answer carries")
            rows = [b"", b""]
        return journal_pb2.DiffRunsResponse(
            diverged=found.diverged,
            index=found.index,
            reason=found.reason,
            reason_code=found.reason_code,
            mutation_kind=found.mutation_kind,
            a_event_json=rows[0],
            b_event_json=rows[1],
            note="; ".join(notes),
        )

    def BuildReceipt(
        self, request: journal_pb2.BuildReceiptRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.BuildReceiptResponse]:
        run_id = request.run_id
        if run_id == LATEST:
            run_id = self._runs.resolve(run_id)
        run_id = self._store.real_run(run_id)  # it may have a spine and no journal
        wanted = _wanted(request)

        def work(report: Report) -> Receipt:
            with self._reading.of(run_id):
                return self._receipts.build(
                    run_id,
                    lambda: self._signer(request),
                    report,
                    wanted,
                    unfinished=request.unfinished,
                )

        for item in with_progress(work):
            if isinstance(item, Done):
                yield journal_pb2.BuildReceiptResponse(progress=_progress(item))
            else:
                yield from self._delivered(run_id, item.value, download=request.download)

    def _delivered(
        self, run_id: str, receipt: Receipt, *, download: bool
    ) -> Iterator[journal_pb2.BuildReceiptResponse]:
        path = ""
        if download:
            for part in receipt.parts:
                for start in range(0, len(part), limits.CHUNK_BYTES):
                    piece = part[start : start + limits.CHUNK_BYTES]
                    yield journal_pb2.BuildReceiptResponse(receipt_data=piece)
        else:
            name = paths.receipt_path(run_id)
            self._store.put_parts(name, receipt.parts)
            self._store.put(paths.receipt_cose_path(run_id), receipt.cose)
            path = self._store.where(name)
        yield journal_pb2.BuildReceiptResponse(
            summary=journal_pb2.ReceiptSummary(
                run_id=run_id,
                journal_head=receipt.subject.journal_head,
                row_count=receipt.subject.event_count,
                spine_head=receipt.subject.spine_head,
                spine_entry_count=receipt.subject.spine_entry_count,
                receipt_sha256=receipt.sha256,
                key_id=receipt.key_id,
                receipt_path=path,
                cose=receipt.cose,
                size_bytes=receipt.size_bytes,
                audit_range=_audit_summary(receipt),
            )
        )

    def _signer(self, request: journal_pb2.BuildReceiptRequest) -> Signer:
        if request.signer_socket:
            return once_signer(self._places, Path(request.signer_socket), request.signer_token)
        return self._resident_signer()

    def _log_to_compare(self, run_id: str) -> str:
        """The gateway's fixtures where a run has them, as in the peer; else its journal."""
        paths.check_run_id(run_id)
        fixtures = paths.events_path(run_id)
        if self._store.size(fixtures) is not None:
            return fixtures
        return paths.journal_path(self._runs.resolve(run_id))

    def _packed(self, facts: RunFacts) -> journal_pb2.Run:
        located = self._store.where(paths.journal_path(facts.run_id))
        return journal_pb2.Run(journal_path=located, **asdict(facts))


def _wanted(request: journal_pb2.BuildReceiptRequest) -> Wanted | None:
    if not request.HasField("audit_window"):
        return None
    window = request.audit_window
    return Wanted(AuditWindow.parse(window.since, window.until), window.own_only)


def _audit_summary(receipt: Receipt) -> journal_pb2.AuditRangeSummary | None:
    audit = receipt.subject.audit
    if audit is None:
        return None
    return journal_pb2.AuditRangeSummary(
        event_count=audit.event_count or 0,
        foreign_event_count=receipt.foreign_event_count,
        head_hmac=audit.head_hmac or "",
    )


def _progress(done: Done) -> journal_pb2.Progress:
    return journal_pb2.Progress(done_bytes=done.done_bytes, total_bytes=done.total_bytes)


def _row_json(row: object) -> bytes:
    return b"" if row is None else json.dumps(row).encode()  # noqa: TID251 - a view, not evidence


def _verification(found: RunVerification) -> journal_pb2.Verification:
    journal = found.journal
    return journal_pb2.Verification(
        run_id=found.run_id,
        chain_consistent=journal.chain_consistent,
        coverage=journal.coverage,
        identity=journal.identity,
        row_count=journal.count,
        divergent_index=journal.divergent_index,
        divergent_line=journal.divergent_line,
        expected_hash=journal.expected_hash or "",
        actual_hash=journal.actual_hash or "",
        head_hash=journal.head,
        discarded_lines=journal.discarded_line_indices,
        discarded_count=journal.discarded_count,
        errors=journal.errors,
        findings=[
            journal_pb2.Finding(reason=each.reason, index=each.index, member=each.member or "")
            for each in journal.findings
        ],
        flagged_steps=found.flagged_steps,
        provider_errors=found.provider_errors,
        notes=found.notes,
        report_path=found.report_path,
        sealed_row_count=found.sealed_row_count,
        pinned_key=found.pinned_key,
    )


def _landed(appended: Appended) -> dict[str, Any]:
    return {
        "first_index": appended.first_index,
        "head_hash": bytes.fromhex(appended.head_hash),
        "row_count": appended.row_count,
    }
