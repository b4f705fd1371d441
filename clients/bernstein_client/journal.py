"""The journal, as programs see it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client import journal_calls
from bernstein_client.append_line import (
    AppendResult,
    EncodedEvent,
    Event,
    encoded,
    joined,
    pages,
)
from bernstein_client.appender import Appender
from bernstein_client.journal_calls import ReceiptReader
from bernstein_client.rpc import Answer, Rpc
from bernstein_client.service_channel import ServiceChannel
from bernstein_client.values import (
    AuditRangeWanted,
    BuiltReceipt,
    ChangedThing,
    FinishedRun,
    KnownReceipt,
    LogKind,
    OnceSigner,
    Progress,
    PrunedRuns,
    Quarantined,
    RepairedRun,
    RunDifference,
    RunInfo,
    Verification,
    Watched,
    no_progress,
)
from bernstein_client.watching import WATCH_TRIES, index_after
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import Unavailable
from bernstein_runtime import forked, limits


class JournalClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = journal_pb2_grpc.JournalServiceStub(connection.channel)
        self._appenders: dict[str, Appender] = {}
        forked.renew_after_fork(self)

    def after_fork(self) -> None:
        """What its parent's threads wait for is not for a child to send."""
        self._appenders = {}

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str:
        """Make a run; without an id the journal makes one. Raises RunExists."""
        request_id = self._connection.request_id()
        return self._answer(journal_calls.create_run(request_id, run_id, metadata, replay))

    def append(self, run_id: str, event: str, payload: Mapping[str, JsonValue]) -> AppendResult:
        """Append one event; it is durable when this returns."""
        return self.append_many(run_id, [(event, payload)])

    def append_many(self, run_id: str, events: Sequence[Event]) -> AppendResult:
        """Append events: all of them, in this order, or none."""
        return self._appender(run_id).append(encoded(events))

    def append_pages(self, run_id: str, events: Iterable[Event]) -> AppendResult:
        """Append any number of events in this order: in pages, each of which lands or does not.
        Raises InvalidInput where there is none."""
        return joined([self._appender(run_id).append(page) for page in pages(events)])

    def _appender(self, run_id: str) -> Appender:
        appender = self._appenders.get(run_id)
        if appender is None:
            appender = self._appenders.setdefault(
                run_id, Appender(lambda batch: self._send(run_id, batch))
            )
        return appender

    def _send(self, run_id: str, events: Sequence[EncodedEvent]) -> AppendResult:
        request_id = self._connection.request_id()
        return self._answer(journal_calls.append_events(request_id, run_id, events))

    def _answer(self, rpc: Rpc[Answer]) -> Answer:
        return self._connection.answer(self._stub, rpc)

    def append_rows(
        self,
        run_id: str,
        part: str,
        start_offset: int,
        data: bytes,
        prefix_sha256: bytes | None = None,
    ) -> int:
        """Append stored bytes verbatim to a run's "journal" or "spine"; gives the file's size.

        Raises HeadMoved where the bytes before them are not what `prefix_sha256` says.
        """
        kinds = {"journal": journal_pb2.ROW_KIND_JOURNAL, "spine": journal_pb2.ROW_KIND_SPINE}
        request = journal_pb2.AppendRowsRequest(
            run_id=run_id,
            kind=kinds[part],
            data=data,
            start_offset=start_offset,
            prefix_sha256=prefix_sha256,
        )
        return self._connection.call(self._stub.AppendRows, request, "AppendRows").size_bytes

    def finish_run(self, run_id: str, *, spine_seal: bool = True) -> FinishedRun:
        """Have a run sealed; nothing can be appended afterwards. `spine_seal`: in its spine too."""
        return self._answer(journal_calls.finish_run(run_id, spine_seal=spine_seal))

    def begin_ledger(self) -> None:
        """Go on with the signer's present ledger when the one that sealed here is lost."""
        request = journal_pb2.BeginLedgerRequest()
        self._connection.call(self._stub.BeginLedger, request, "BeginLedger")

    def accept_loss(self, kind: LogKind, log_id: str, why: str) -> tuple[str, ...]:
        """Go on with what is left of a log; gives what is gone, file by file, if anything is."""
        request = journal_pb2.AcceptLossRequest(
            kind=journal_pb2.LogKind.Value(f"LOG_KIND_{kind.name}"), id=log_id, text=why
        )
        return tuple(self._connection.call(self._stub.AcceptLoss, request, "AcceptLoss").lost)

    def quarantine(self, caller: str, since: str, action: str = "") -> Quarantined:
        """What a caller changed since an instant; action "fence" or "lift" does so besides."""
        request = journal_pb2.QuarantineCallerRequest(
            caller=caller,
            since=since,
            action=journal_pb2.QuarantineAction.Value(
                f"QUARANTINE_ACTION_{(action or 'unspecified').upper()}"
            ),
            request_id=self._connection.request_id(),
        )
        changed, is_fenced = list[ChangedThing](), False
        for part in self._connection.stream(self._stub.QuarantineCaller, request):
            is_fenced = part.is_fenced
            changed += map(_changed, part.changed)
        return Quarantined(tuple(changed), is_fenced)

    def get_run(self, run_id: str) -> RunInfo:
        """Raises RunNotFound. "latest" is the newest orchestrator run."""
        return self._answer(journal_calls.get_run(run_id))

    def list_runs(self) -> Iterator[RunInfo]:
        """All runs, newest first."""
        token = ""
        while True:
            request = journal_pb2.ListRunsRequest(page_token=token)
            page = self._connection.call(self._stub.ListRuns, request, "ListRuns")
            yield from map(journal_calls.run_info, page.runs)
            token = page.next_page_token
            if not token:
                return

    def read_journal(self, run_id: str, start_offset: int = 0) -> Iterator[bytes]:
        """The stored bytes in parts. Raises RunNotFound."""
        rpc = journal_calls.read_journal(run_id, start_offset)
        for part in self._connection.stream(self._stub.ReadJournal, rpc.request):
            yield rpc.read(part)

    def verify_run(self, run_id: str, progress: Progress = no_progress) -> Verification:
        """Verify a run where its file is. Raises RunNotFound; a broken run is an answer."""
        rpc = journal_calls.verify_run(run_id)
        for item in self._connection.stream(self._stub.VerifyRun, rpc.request):
            if found := rpc.read(item):
                return found
            progress(item.progress.done_bytes, item.progress.total_bytes)
        raise AssertionError("the verification is the last message")

    def check_receipt(self, run_id: str, receipt_sha256: bytes) -> KnownReceipt:
        """What the signer knows of a receipt, which is to be verified besides."""
        request = journal_pb2.CheckReceiptRequest(run_id=run_id, receipt_sha256=receipt_sha256)
        answer = self._connection.call(self._stub.CheckReceipt, request, "CheckReceipt")
        return KnownReceipt(answer.is_known, answer.is_sealed, answer.public_key_pem)

    def rebuild_state(self, run_id: str, from_step: int) -> tuple[str, Mapping[str, JsonValue]]:
        """The run that is meant and its state after `from_step` rows."""
        request = journal_pb2.RebuildStateRequest(run_id=run_id, from_step=from_step)
        answers = list(self._connection.stream(self._stub.RebuildState, request))
        return answers[0].run_id, json.loads(b"".join(each.state_json for each in answers))

    def diff_runs(self, run_id_a: str, run_id_b: str) -> RunDifference:
        """Where two runs part. Raises RunNotFound."""
        request = journal_pb2.DiffRunsRequest(run_id_a=run_id_a, run_id_b=run_id_b)
        answer = self._connection.call(self._stub.DiffRuns, request, "DiffRuns")
        return RunDifference(
            diverged=answer.diverged,
            index=answer.index if answer.HasField("index") else None,
            reason=answer.reason,
            reason_code=answer.reason_code,
            mutation_kind=answer.mutation_kind,
            a_event=json.loads(answer.a_event_json or b"null"),
            b_event=json.loads(answer.b_event_json or b"null"),
            note=answer.note,
        )

    def watch_rows(self, run_id: str, start_index: int = 0) -> Iterator[Watched]:
        """Rows from a position on, and those to come, until the run is sealed.

        Goes on where it was when the journal is started anew. Raises RunNotFound, InvalidInput for
        a position that no row has, TooManyStreams.
        """
        next_index, failures = start_index, 0
        while True:
            rpc = journal_calls.watch_rows(run_id, next_index)
            try:
                for answer in self._connection.stream(self._stub.WatchRows, rpc.request, None):
                    item = rpc.read(answer)
                    if item is not None:
                        next_index, failures = index_after(item), 0
                        yield item
            except Unavailable:
                failures += 1
                if failures > WATCH_TRIES:
                    raise
                self._connection.revive()
            else:
                return

    def repair_run(self, run_id: str, *, recover: bool = False) -> RepairedRun:
        """Put a damaged journal in order. Raises RunNotFound, JournalError where it is refused."""
        request = journal_pb2.RepairRunRequest(run_id=run_id, recover=recover)
        answer = self._connection.call(
            self._stub.RepairRun, request, "RepairRun", limits.LONG_CALL_TIMEOUT_SECONDS
        )
        return RepairedRun(
            run_id=answer.run_id,
            journal_path=answer.journal_path,
            repaired=answer.repaired,
            removed_lines=tuple(answer.removed_lines),
            row_count=answer.row_count,
            head_hash=answer.head_hash,
            recovered_count=answer.recovered_count,
            added_newline=answer.added_newline,
            kept_path=answer.kept_path,
        )

    def prune_runs(self, keep_count: int, *, preview: bool) -> PrunedRuns:
        """Remove the oldest sealed runs so that `keep_count` stay; 0 keeps all."""
        request = journal_pb2.PruneRunsRequest(keep_count=keep_count, preview=preview)
        answer = self._connection.call(
            self._stub.PruneRuns, request, "PruneRuns", limits.LONG_CALL_TIMEOUT_SECONDS
        )
        kept = tuple((each.run_id, each.reason) for each in answer.kept)
        return PrunedRuns(tuple(answer.removed_run_ids), kept, answer.left_count)

    def build_receipt(
        self,
        run_id: str,
        signer: OnceSigner | None = None,
        write: Callable[[bytes], object] | None = None,
        progress: Progress = no_progress,
        audit: AuditRangeWanted | None = None,
        *,
        unfinished: bool = False,
    ) -> BuiltReceipt:
        """Have a receipt built and stored beside the run; with `write` its bytes go there instead,
        and are good only if this returns. A run that is not finished has to be named as such."""
        request_id = self._connection.request_id()
        rpc = journal_calls.build_receipt(
            request_id, run_id, signer, audit, download=write is not None, unfinished=unfinished
        )
        reader = ReceiptReader(write, progress)
        for item in self._connection.stream(self._stub.BuildReceipt, rpc.request):
            if built := reader.take(item):
                return built
        raise AssertionError("the summary is the last message")


def _changed(thing: journal_pb2.ChangedThing) -> ChangedThing:
    methods = tuple(thing.methods)
    return ChangedThing(thing.kind, thing.id, thing.first_at, thing.last_at, methods, thing.is_own)
