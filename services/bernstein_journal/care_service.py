"""The calls of JournalService for whole runs (follow, copy, repair, prune): unpack, call, pack."""

from collections.abc import Callable, Iterator
from itertools import chain

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput
from bernstein_journal.copies import Copies
from bernstein_journal.losses import Losses
from bernstein_journal.quarantine import Changed, Quarantine
from bernstein_journal.receipts import ReceiptMaker
from bernstein_journal.repair import Repairer
from bernstein_journal.requests import check_request_id
from bernstein_journal.retention import Pruner, Reading
from bernstein_journal.runs import Runs
from bernstein_journal.signer import Signer
from bernstein_journal.verification import Verifier
from bernstein_journal.watchers import RowPart, WatchedRows, Watchers, WatchPlace
from bernstein_journal.writer import Writer
from bernstein_runtime import limits
from bernstein_runtime.caller import name_of
from bernstein_store.store import Store

LISTED_MAX = 1000
CALLER_CHARACTERS_MAX = 512
REASON_CHARACTERS_MAX = 1000
LOG_NAMES = {
    journal_pb2.LOG_KIND_SPINE: paths.spine_path,
    journal_pb2.LOG_KIND_JOURNAL: paths.journal_path,
    journal_pb2.LOG_KIND_STEPS: paths.steps_path,
}


class CareCalls(journal_pb2_grpc.JournalServiceServicer):
    """A part of the service; whoever inherits it sets what is declared here."""

    _store: Store
    _runs: Runs
    _writer: Writer
    _verifier: Verifier
    _watchers: Watchers
    _reading: Reading
    _pruner: Pruner
    _repairer: Repairer
    _losses: Losses
    _copies: Copies
    _quarantine: Quarantine
    _receipts: ReceiptMaker
    _resident_signer: Callable[[], Signer]

    def WatchRows(
        self, request: journal_pb2.WatchRowsRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.WatchRowsResponse]:
        run_id = self._runs.resolve(request.run_id)
        with self._reading.of(run_id):
            wanted = request.start_index, context.is_active
            for item in self._watchers.watch(run_id, *wanted, takes_parts=request.takes_parts):
                yield _watched(run_id, item)

    def RepairRun(
        self, request: journal_pb2.RepairRunRequest, context: grpc.ServicerContext
    ) -> journal_pb2.RepairRunResponse:
        run_id = self._runs.resolve(request.run_id)
        with self._writer.finishing(run_id), self._reading.of(run_id):
            seal = self._verifier.sealed(run_id)
            done = self._repairer.repair(run_id, seal, recover=request.recover)
        return journal_pb2.RepairRunResponse(
            run_id=run_id,
            journal_path=self._store.where(paths.journal_path(run_id)),
            repaired=done.repair.repaired,
            removed_lines=done.repair.removed_line_indices[:LISTED_MAX],
            row_count=done.repair.event_count,
            head_hash=done.repair.head,
            recovered_count=done.repair.recovered_count,
            added_newline=done.repair.adds_newline,
            kept_path=self._store.where(done.kept) if done.kept else "",
        )

    def PruneRuns(
        self, request: journal_pb2.PruneRunsRequest, context: grpc.ServicerContext
    ) -> journal_pb2.PruneRunsResponse:
        pruned = self._pruner.prune(request.keep_count, preview=request.preview)
        return journal_pb2.PruneRunsResponse(
            removed_run_ids=pruned.removed,
            kept=[journal_pb2.KeptRun(run_id=run, reason=why) for run, why in pruned.kept],
            left_count=pruned.left_count,
        )

    def AcceptLoss(
        self, request: journal_pb2.AcceptLossRequest, context: grpc.ServicerContext
    ) -> journal_pb2.AcceptLossResponse:
        if not 1 <= len(request.text) <= REASON_CHARACTERS_MAX or not request.text.isprintable():
            raise InvalidInput(
                f"say why, in 1 to {REASON_CHARACTERS_MAX} characters that can be printed",
                field="text",
            )
        lost = self._losses.accept(_log_name(request), request.text)
        return journal_pb2.AcceptLossResponse(lost=lost)

    def CheckReceipt(
        self, request: journal_pb2.CheckReceiptRequest, context: grpc.ServicerContext
    ) -> journal_pb2.CheckReceiptResponse:
        paths.check_run_id(request.run_id)
        found = self._receipts.check(
            request.run_id, request.receipt_sha256, self._resident_signer()
        )
        return journal_pb2.CheckReceiptResponse(
            is_known=found.is_known,
            is_sealed=found.is_sealed,
            public_key_pem=found.public_key_pem,
        )

    def ExportRun(
        self, request: journal_pb2.ExportRunRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.ExportRunResponse]:
        run_id = self._runs.resolve(request.run_id)
        with self._reading.of(run_id):
            for name, parts in self._copies.files(run_id):
                yield journal_pb2.ExportRunResponse(name=name)
                for part in parts:
                    for start in range(0, len(part), limits.CHUNK_BYTES):
                        piece = part[start : start + limits.CHUNK_BYTES]
                        yield journal_pb2.ExportRunResponse(data=piece)

    def ImportFile(
        self,
        request_iterator: Iterator[journal_pb2.ImportFileRequest],
        context: grpc.ServicerContext,
    ) -> journal_pb2.ImportFileResponse:
        first = next(request_iterator, None)
        if first is None:
            raise InvalidInput("an empty stream names no file", field="name")
        parts = (each.data for each in chain([first], request_iterator))
        size, is_new = self._copies.take_in(first.run_id, first.name, parts)
        return journal_pb2.ImportFileResponse(size_bytes=size, is_new=is_new)

    def QuarantineCaller(
        self, request: journal_pb2.QuarantineCallerRequest, context: grpc.ServicerContext
    ) -> Iterator[journal_pb2.QuarantineCallerResponse]:
        check_request_id(request.request_id)
        if not 1 <= len(request.caller) <= CALLER_CHARACTERS_MAX:
            raise InvalidInput("name the caller, as its certificate does", field="caller")
        by = name_of(context) or "operator"
        found: list[Changed] = []
        if request.action == journal_pb2.QUARANTINE_ACTION_LIFT:
            self._quarantine.lift(request.caller, by, request.request_id)
        elif request.action == journal_pb2.QUARANTINE_ACTION_FENCE:
            if request.caller == by:
                raise InvalidInput("that is yourself; let another operator do it", field="caller")
            found = self._quarantine.fence(request.caller, request.since, by, request.request_id)
        else:
            found = self._quarantine.changed(request.caller, request.since)
        for start in range(0, len(found), LISTED_MAX):
            page = [_changed(each) for each in found[start : start + LISTED_MAX]]
            yield journal_pb2.QuarantineCallerResponse(changed=page)
        is_fenced = self._quarantine.is_fenced(request.caller)
        yield journal_pb2.QuarantineCallerResponse(is_fenced=is_fenced)


def _changed(changed: Changed) -> journal_pb2.ChangedThing:
    return journal_pb2.ChangedThing(
        kind=changed.target.kind,
        id=changed.target.target_id,
        first_at=int(changed.first_at),
        last_at=int(changed.last_at),
        methods=changed.methods,
        is_own=changed.is_own,
    )


def _log_name(request: journal_pb2.AcceptLossRequest) -> str | None:
    """The log's name; None for the audit log."""
    if request.kind == journal_pb2.LOG_KIND_AUDIT:
        return None
    if request.kind not in LOG_NAMES:
        raise InvalidInput("say which log it is: kind is not set", field="kind")
    return LOG_NAMES[request.kind](request.id)


def _watched(
    run_id: str, item: WatchedRows | RowPart | WatchPlace
) -> journal_pb2.WatchRowsResponse:
    if isinstance(item, RowPart):
        part = journal_pb2.RowPart(index=item.index, data=item.data, is_last=item.is_last)
        return journal_pb2.WatchRowsResponse(part=part)
    if isinstance(item, WatchedRows):
        rows = journal_pb2.WatchedRows(first_index=item.first_index, lines=item.lines)
        return journal_pb2.WatchRowsResponse(rows=rows)
    place = journal_pb2.WatchPlace(
        run_id=run_id, next_index=item.next_index, is_sealed=item.is_sealed
    )
    return journal_pb2.WatchRowsResponse(place=place)
