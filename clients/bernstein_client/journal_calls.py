"""The journal's calls as values, and what their answers mean: the same for threads and tasks."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from bernstein_api.journal.v1 import journal_pb2
from bernstein_client.append_line import AppendResult, EncodedEvent
from bernstein_client.rpc import Rpc
from bernstein_client.values import (
    AuditRangeWanted,
    BuiltAuditRange,
    BuiltReceipt,
    Finding,
    FinishedRun,
    OnceSigner,
    Progress,
    RunInfo,
    Verification,
    Watched,
)
from bernstein_client.watching import Watching
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import SignatureWrong
from bernstein_runtime import limits


def create_run(request_id: str, run_id: str, metadata: bytes, replay: bytes) -> Rpc[str]:
    request = journal_pb2.CreateRunRequest(
        run_id=run_id, request_id=request_id, metadata_json=metadata, replay_json=replay
    )
    return Rpc("CreateRun", request, lambda answer: str(answer.run_id))


def append_events(
    request_id: str, run_id: str, events: Sequence[EncodedEvent]
) -> Rpc[AppendResult]:
    if len(events) == 1 and len(events[0][1]) > limits.PIECE_BYTES_MAX:
        return _append_long_event(request_id, run_id, *events[0])
    request = journal_pb2.AppendEventsRequest(
        run_id=run_id,
        request_id=request_id,
        events=[
            journal_pb2.NewEvent(event=event, payload_json=payload) for event, payload in events
        ],
    )
    return Rpc("AppendEvents", request, _appended)


def _append_long_event(
    request_id: str, run_id: str, event: str, payload: bytes
) -> Rpc[AppendResult]:
    first = journal_pb2.AppendLongEventRequest(
        run_id=run_id,
        request_id=request_id,
        event=event,
        sha256=hashlib.sha256(payload).digest(),
    )
    parts = (
        journal_pb2.AppendLongEventRequest(data=payload[at : at + limits.CHUNK_BYTES])
        for at in range(0, len(payload), limits.CHUNK_BYTES)
    )
    return Rpc("AppendLongEvent", (first, *parts), _appended)


def finish_run(run_id: str, *, spine_seal: bool = True) -> Rpc[FinishedRun]:
    request = journal_pb2.FinishRunRequest(run_id=run_id, without_spine_seal=not spine_seal)
    return Rpc("FinishRun", request, _finished, limits.LONG_CALL_TIMEOUT_SECONDS)


def get_run(run_id: str) -> Rpc[RunInfo]:
    request = journal_pb2.GetRunRequest(run_id=run_id)
    return Rpc("GetRun", request, lambda answer: run_info(answer.run))


def watch_rows(run_id: str, start_index: int) -> Rpc[Watched | None]:
    """A stream, of which each message is read as it comes."""
    request = journal_pb2.WatchRowsRequest(run_id=run_id, start_index=start_index, takes_parts=True)
    return Rpc("WatchRows", request, Watching().take, None)


def read_journal(run_id: str, start_offset: int = 0) -> Rpc[bytes]:
    """A stream of the stored bytes in parts."""
    request = journal_pb2.ReadJournalRequest(run_id=run_id, start_offset=start_offset)
    return Rpc(
        "ReadJournal",
        request,
        lambda answer: bytes(answer.data),
        limits.LONG_CALL_TIMEOUT_SECONDS,
    )


def verify_run(run_id: str) -> Rpc[Verification | None]:
    """A stream: progress, and the verification as its last message."""
    request = journal_pb2.VerifyRunRequest(run_id=run_id)
    return Rpc("VerifyRun", request, _verified, limits.LONG_CALL_TIMEOUT_SECONDS)


def build_receipt(
    request_id: str,
    run_id: str,
    signer: OnceSigner | None = None,
    audit: AuditRangeWanted | None = None,
    *,
    download: bool = False,
    unfinished: bool = False,
) -> Rpc[None]:
    """A stream, which a ReceiptReader reads."""
    request = journal_pb2.BuildReceiptRequest(
        run_id=run_id,
        request_id=request_id,
        signer_socket=str(signer.socket) if signer else "",
        signer_token=signer.token if signer else b"",
        download=download,
        audit_window=journal_pb2.AuditWindow(**asdict(audit)) if audit else None,
        unfinished=unfinished,
    )
    return Rpc("BuildReceipt", request, lambda _: None, limits.LONG_CALL_TIMEOUT_SECONDS)


class ReceiptReader:
    """Takes the messages of a receipt; its bytes are good only once the summary is given."""

    def __init__(self, write: Callable[[bytes], object] | None, progress: Progress) -> None:
        self._write = write
        self._progress = progress
        self._digest = hashlib.sha256()

    def take(self, item: journal_pb2.BuildReceiptResponse) -> BuiltReceipt | None:
        """The summary, which is the last message. Raises SignatureWrong for damaged bytes."""
        if item.HasField("summary"):
            if self._write and self._digest.digest() != item.summary.receipt_sha256:
                raise SignatureWrong("the receipt was damaged on its way; build it again")
            return _built(item.summary)
        if item.HasField("progress"):
            self._progress(item.progress.done_bytes, item.progress.total_bytes)
        elif self._write is not None:
            self._digest.update(item.receipt_data)
            self._write(item.receipt_data)
        return None


def _verified(item: journal_pb2.VerifyRunResponse) -> Verification | None:
    return _verification(item.verification) if item.HasField("verification") else None


def _appended(
    answer: journal_pb2.AppendEventsResponse | journal_pb2.AppendLongEventResponse,
) -> AppendResult:
    return AppendResult(answer.first_index, answer.head_hash.hex(), answer.row_count)


def _finished(answer: journal_pb2.FinishRunResponse) -> FinishedRun:
    return FinishedRun(
        answer.head_hash.hex(), answer.row_count, answer.seal_json, tuple(answer.notes)
    )


def run_info(run: journal_pb2.Run) -> RunInfo:
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
