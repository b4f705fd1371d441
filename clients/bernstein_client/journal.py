"""The journal, as programs see it."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.appender import Appender, AppendResult, EncodedEvent
from bernstein_client.service_channel import ServiceChannel
from bernstein_client.values import (
    AuditRangeWanted,
    BuiltAuditRange,
    BuiltReceipt,
    ChangedThing,
    Finding,
    FinishedRun,
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
from bernstein_client.watching import WATCH_TRIES, index_after, watched
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import SignatureWrong, Unavailable
from bernstein_runtime import limits


class JournalClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = journal_pb2_grpc.JournalServiceStub(connection.channel)
        self._appenders: dict[str, Appender] = {}

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str:
        """Make a run; without an id the journal makes one. Raises RunExists."""
        request = journal_pb2.CreateRunRequest(
            run_id=run_id,
            request_id=self._connection.request_id(),
            metadata_json=metadata,
            replay_json=replay,
        )
        return self._connection.call(self._stub.CreateRun, request, "CreateRun").run_id

    def append(self, run_id: str, event: str, payload: Mapping[str, JsonValue]) -> AppendResult:
        """Append one event; it is durable when this returns."""
        return self.append_many(run_id, [(event, payload)])

    def append_many(
        self, run_id: str, events: Sequence[tuple[str, Mapping[str, JsonValue]]]
    ) -> AppendResult:
        """Append events: all of them, in this order, or none."""
        encoded = [(event, spelled(dict(payload)).encode()) for event, payload in events]
        appender = self._appenders.get(run_id)
        if appender is None:
            appender = self._appenders.setdefault(
                run_id, Appender(lambda batch: self._send(run_id, batch))
            )
        return appender.append(encoded)

    def _send(self, run_id: str, events: Sequence[EncodedEvent]) -> AppendResult:
        request = journal_pb2.AppendEventsRequest(
            run_id=run_id,
            request_id=self._connection.request_id(),
            events=[
                journal_pb2.NewEvent(event=event, payload_json=payload) for event, payload in events
            ],
        )
        answer = self._connection.call(self._stub.AppendEvents, request, "AppendEvents")
        return AppendResult(answer.first_index, answer.head_hash.hex(), answer.row_count)

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
        answer = self._connection.call(
            self._stub.FinishRun,
            journal_pb2.FinishRunRequest(run_id=run_id, without_spine_seal=not spine_seal),
            "FinishRun",
            limits.LONG_CALL_TIMEOUT_SECONDS,
        )
        return FinishedRun(
            answer.head_hash.hex(), answer.row_count, answer.seal_json, tuple(answer.notes)
        )

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
        request = journal_pb2.GetRunRequest(run_id=run_id)
        return _run_info(self._connection.call(self._stub.GetRun, request, "GetRun").run)

    def list_runs(self) -> Iterator[RunInfo]:
        """All runs, newest first."""
        token = ""
        while True:
            request = journal_pb2.ListRunsRequest(page_token=token)
            page = self._connection.call(self._stub.ListRuns, request, "ListRuns")
            yield from (_run_info(run) for run in page.runs)
            token = page.next_page_token
            if not token:
                return

    def read_journal(self, run_id: str, start_offset: int = 0) -> Iterator[bytes]:
        """The stored bytes in parts. Raises RunNotFound."""
        request = journal_pb2.ReadJournalRequest(run_id=run_id, start_offset=start_offset)
        for part in self._connection.stream(self._stub.ReadJournal, request):
            yield part.data

    def verify_run(self, run_id: str, progress: Progress = no_progress) -> Verification:
        """Verify a run where its file is. Raises RunNotFound; a broken run is an answer."""
        request = journal_pb2.VerifyRunRequest(run_id=run_id)
        for item in self._connection.stream(self._stub.VerifyRun, request):
            if item.HasField("verification"):
                return _verification(item.verification)
            progress(item.progress.done_bytes, item.progress.total_bytes)
        raise AssertionError("the verification is the last message")

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
            request = journal_pb2.WatchRowsRequest(run_id=run_id, start_index=next_index)
            try:
                for answer in self._connection.stream(self._stub.WatchRows, request, None):
                    item = watched(answer)
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
        request = journal_pb2.BuildReceiptRequest(
            run_id=run_id,
            request_id=self._connection.request_id(),
            signer_socket=str(signer.socket) if signer else "",
            signer_token=signer.token if signer else b"",
            download=write is not None,
            audit_window=journal_pb2.AuditWindow(**asdict(audit)) if audit else None,
            unfinished=unfinished,
        )
        digest = hashlib.sha256()
        for item in self._connection.stream(self._stub.BuildReceipt, request):
            if item.HasField("progress"):
                progress(item.progress.done_bytes, item.progress.total_bytes)
            elif item.HasField("summary"):
                if write is not None and digest.digest() != item.summary.receipt_sha256:
                    raise SignatureWrong("the receipt was damaged on its way; build it again")
                return _built(item.summary)
            elif write is not None:
                digest.update(item.receipt_data)
                write(item.receipt_data)
        raise AssertionError("the summary is the last message")


def _run_info(run: journal_pb2.Run) -> RunInfo:
    return RunInfo(
        run_id=run.run_id,
        row_count=run.row_count,
        size_bytes=run.size_bytes,
        metadata=_object(run.metadata_json),
        replay=_object(run.replay_json),
        seal_json=run.seal_json,
        journal_path=run.journal_path,
        damage=run.damage,
    )


def _object(text: bytes) -> Mapping[str, JsonValue] | None:
    """A small file's object; None for anything else that may stand there."""
    try:
        value = json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _verification(found: journal_pb2.Verification) -> Verification:
    return Verification(
        run_id=found.run_id,
        chain_consistent=found.chain_consistent,
        coverage=found.coverage,
        identity=found.identity,
        row_count=found.row_count,
        divergent_index=found.divergent_index if found.HasField("divergent_index") else None,
        divergent_line=found.divergent_line if found.HasField("divergent_line") else None,
        expected_hash=found.expected_hash,
        actual_hash=found.actual_hash,
        head_hash=found.head_hash,
        discarded_lines=tuple(found.discarded_lines),
        discarded_count=found.discarded_count,
        errors=tuple(found.errors),
        findings=tuple(
            Finding(each.reason, each.index if each.HasField("index") else None, each.member)
            for each in found.findings
        ),
        flagged_steps=tuple(found.flagged_steps),
        provider_errors=tuple(found.provider_errors),
        notes=tuple(found.notes),
        report_path=found.report_path,
        sealed_row_count=found.sealed_row_count,
        pinned_key=found.pinned_key if found.HasField("pinned_key") else None,
    )


def _built(summary: journal_pb2.ReceiptSummary) -> BuiltReceipt:
    return BuiltReceipt(
        run_id=summary.run_id,
        journal_head=summary.journal_head,
        row_count=summary.row_count,
        spine_head=summary.spine_head,
        spine_entry_count=summary.spine_entry_count,
        receipt_sha256_hex=summary.receipt_sha256.hex(),
        key_id=summary.key_id,
        receipt_path=summary.receipt_path,
        cose=summary.cose,
        size_bytes=summary.size_bytes,
        audit=_audit(summary) if summary.HasField("audit_range") else None,
    )


def _audit(summary: journal_pb2.ReceiptSummary) -> BuiltAuditRange:
    audit = summary.audit_range
    return BuiltAuditRange(audit.event_count, audit.foreign_event_count, audit.head_hmac)


def _changed(thing: journal_pb2.ChangedThing) -> ChangedThing:
    methods = tuple(thing.methods)
    return ChangedThing(thing.kind, thing.id, thing.first_at, thing.last_at, methods, thing.is_own)
