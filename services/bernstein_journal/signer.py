"""The journal's way to a signer: the rows go there as a stream of stored bytes, never to be signed
as such. Nobody else calls it."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from bernstein_api.signer.v1 import signer_pb2, signer_pb2_grpc
from bernstein_formats.audit_events import JournalSealEvent
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.audit_range import AuditWindow
from bernstein_formats.canonical import spelled
from bernstein_formats.errors import NotAllowed
from bernstein_formats.spine import SpineFields
from bernstein_runtime import limits
from bernstein_runtime.caller import CALLER_KEY
from bernstein_runtime.channel import call, open_channel
from bernstein_runtime.connector import Connector
from bernstein_runtime.places import Places

PACKAGE = "/bernstein_api.signer.v1.SignerService"
Chunks = Callable[[], Iterator[bytes]]
# Name and bytes of each segment of the audit log, in order.
Segments = Callable[[], Iterator[tuple[str, Iterator[bytes]]]]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SignedReceipt:
    """What only the signer can make."""

    signature: bytes
    cose_signature: bytes
    public_key: bytes
    key_id: str
    receipt_sha256: bytes
    audit_macs: bytes


@dataclass(frozen=True, slots=True)
class MadeSpineRow:
    """A spine row as the signer made it, and the content of `spine.head` with it."""

    line: bytes
    head_json: bytes


@dataclass(frozen=True, slots=True)
class AuditRows:
    """The audit log for a receipt: a window of it, and all its segments with their bytes."""

    window: AuditWindow
    own_only: bool
    segments: Segments


@dataclass(frozen=True, slots=True)
class SpineChecked:
    """A spine's verdict by the key."""

    status: str
    entry_count: int
    sealed_head: str | None
    errors: tuple[str, ...]
    head_hash: str


@dataclass(frozen=True, slots=True)
class AuditChecked:
    """The audit log's verdict by the key, and a run's journal seals in it."""

    event_count: int
    error: str
    seals: tuple[JournalSealEvent, ...]


@dataclass(frozen=True, slots=True)
class Signer:
    """One signer process, resident or started for one receipt."""

    # A channel for one call.
    channel: Callable[[], grpc.Channel]
    token: bytes
    revive: Callable[[], None]
    # Whether it keeps the project's ledger; one that does not is shown the ledger's seal.
    keeps_ledger: bool

    def seal(
        self, *, origin: str, run_id: str, checkpoint: bytes, size: int, journal: Chunks
    ) -> bytes:
        """Content of `seal.json` for the rows that `journal` gives, `size` bytes of them."""
        run = signer_pb2.RunHeader(
            origin=origin, run_id=run_id, checkpoint_json=checkpoint, journal_size_bytes=size
        )

        def requests() -> Iterator[signer_pb2.SealRunRequest]:
            yield signer_pb2.SealRunRequest(run=run)
            for chunk in journal():
                yield signer_pb2.SealRunRequest(journal=chunk)

        with self._stub() as stub:
            response = call(
                f"{PACKAGE}/SealRun",
                lambda: stub.SealRun(
                    requests(),
                    timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
                    metadata=self._metadata(),
                ),
                revive=self.revive,
            )
        return response.seal_json

    def sign_receipt(
        self,
        *,
        origin: str,
        run_id: str,
        row_count: int,
        seal_json: bytes,
        journal: Chunks,
        spine: Chunks,
        audit: AuditRows | None = None,
    ) -> SignedReceipt:
        """Signatures over the receipt that these rows make."""
        header = signer_pb2.ReceiptHeader(
            run=signer_pb2.RunHeader(origin=origin, run_id=run_id),
            row_count=row_count,
            seal_json=b"" if self.keeps_ledger else seal_json,
            audit_window=_window(audit),
        )

        def requests() -> Iterator[signer_pb2.BuildReceiptRequest]:
            yield signer_pb2.BuildReceiptRequest(header=header)
            for part in _audit_parts(audit.segments if audit else None):
                yield signer_pb2.BuildReceiptRequest(audit=part)
            for chunk in journal():
                yield signer_pb2.BuildReceiptRequest(journal=chunk)
            for chunk in spine():
                yield signer_pb2.BuildReceiptRequest(spine=chunk)

        with self._stub() as stub:
            response = call(
                f"{PACKAGE}/BuildReceipt",
                lambda: stub.BuildReceipt(
                    requests(),
                    timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
                    metadata=self._metadata(),
                ),
                revive=self.revive,
            )
        return SignedReceipt(
            signature=response.signature,
            cose_signature=response.cose_signature,
            public_key=response.public_key,
            key_id=response.key_id,
            receipt_sha256=response.receipt_sha256,
            audit_macs=response.audit_macs,
        )

    def find_seal(self, origin: str, run_id: str) -> bytes:
        """What `seal.json` should hold; empty where the ledger knows no seal of the run."""
        request = signer_pb2.FindSealRequest(origin=origin, run_id=run_id)
        found: signer_pb2.FindSealResponse = self._ask(
            "FindSeal", lambda stub, **how: stub.FindSeal(request, **how)
        )
        return found.seal_json

    def find_receipt(self, origin: str, run_id: str, receipt_sha256: bytes) -> tuple[bool, bytes]:
        """Whether the ledger has this receipt; and the key of receipts, empty without one."""
        request = signer_pb2.FindReceiptRequest(
            origin=origin, run_id=run_id, receipt_sha256=receipt_sha256
        )
        found: signer_pb2.FindReceiptResponse = self._ask(
            "FindReceipt", lambda stub, **how: stub.FindReceipt(request, **how)
        )
        return found.is_known, found.public_key_pem

    def seal_key(self) -> bytes:
        """The public key of seals, PEM."""
        request = signer_pb2.GetSealKeyRequest()
        found: signer_pb2.GetSealKeyResponse = self._ask(
            "GetSealKey", lambda stub, **how: stub.GetSealKey(request, **how)
        )
        return found.public_key_pem

    def make_spine_row(
        self, previous_line: bytes, entry_count: int, fields: SpineFields
    ) -> MadeSpineRow:
        """The row behind `previous_line`, which must be authentic."""
        request = signer_pb2.MacSpineEntryRequest(
            previous_line=previous_line,
            entry_count=entry_count,
            entry=signer_pb2.SpineEntry(**asdict(fields)),
        )
        made = self._ask("MacSpineEntry", lambda stub, **how: stub.MacSpineEntry(request, **how))
        return MadeSpineRow(made.line, made.head_json)

    def make_audit_row(self, previous_line: bytes, timestamp: str, fields: AuditFields) -> bytes:
        """The row behind `previous_line`, which must be authentic."""
        event = signer_pb2.AuditEvent(
            event_type=fields.event_type,
            actor=fields.actor,
            resource_type=fields.resource_type,
            resource_id=fields.resource_id,
            details_json=spelled(dict(fields.details)).encode(),
            is_anchored=fields.is_anchored,
        )
        request = signer_pb2.MacAuditEventRequest(
            previous_line=previous_line, timestamp=timestamp, event=event
        )
        made: signer_pb2.MacAuditEventResponse = self._ask(
            "MacAuditEvent", lambda stub, **how: stub.MacAuditEvent(request, **how)
        )
        return made.line

    def verify_spine(self, spine: Chunks) -> SpineChecked:
        """A spine's verdict by the key. Raises KeyUnusable."""

        def requests() -> Iterator[signer_pb2.VerifySpineRequest]:
            for chunk in spine():
                yield signer_pb2.VerifySpineRequest(data=chunk)

        found = self._ask("VerifySpine", lambda stub, **how: stub.VerifySpine(requests(), **how))
        return SpineChecked(
            status=found.status,
            entry_count=found.entry_count,
            sealed_head=found.sealed_head if found.HasField("sealed_head") else None,
            errors=tuple(found.errors),
            head_hash=found.head_hash,
        )

    def verify_audit_log(self, segments: Segments, run_id: str) -> AuditChecked:
        """The log's verdict by the key, and the seals of a run in it. Raises KeyUnusable."""

        def requests() -> Iterator[signer_pb2.VerifyAuditLogRequest]:
            yield signer_pb2.VerifyAuditLogRequest(run_id=run_id)
            for part in _audit_parts(segments):
                yield signer_pb2.VerifyAuditLogRequest(audit=part)

        found = self._ask(
            "VerifyAuditLog", lambda stub, **how: stub.VerifyAuditLog(requests(), **how)
        )
        return AuditChecked(found.event_count, found.error, tuple(map(_journal_seal, found.seals)))

    def _ask(self, method: str, send: Callable[..., Answer]) -> Answer:
        with self._stub() as stub:
            return call(
                f"{PACKAGE}/{method}",
                lambda: send(
                    stub, timeout=limits.LONG_CALL_TIMEOUT_SECONDS, metadata=self._metadata()
                ),
                revive=self.revive,
            )

    def _stub(self) -> "_Stub":
        return _Stub(self.channel())

    def _metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((CALLER_KEY, self.token),) if self.token else ()


def _window(audit: AuditRows | None) -> signer_pb2.AuditWindow | None:
    if audit is None:
        return None
    window = audit.window
    return signer_pb2.AuditWindow(since=window.since, until=window.until, own_only=audit.own_only)


def _audit_parts(segments: Segments | None) -> Iterator[signer_pb2.AuditPart]:
    for name, chunks in segments() if segments else ():
        for chunk in chunks:
            yield signer_pb2.AuditPart(segment=name, data=chunk)


def _journal_seal(seal: signer_pb2.JournalSeal) -> JournalSealEvent:
    return JournalSealEvent(
        task_id=seal.task_id,
        capsule_hash=seal.capsule_hash,
        journal_head=seal.journal_head,
        event_count=seal.event_count if seal.HasField("event_count") else None,
    )


class _Stub:
    """A stub that closes its channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def __enter__(self) -> signer_pb2_grpc.SignerServiceStub:
        return signer_pb2_grpc.SignerServiceStub(self._channel)

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def resident_signer(connector: Connector, token: bytes) -> Signer:
    """The project's own signer, started when it is not running, or the fleet's."""

    def revive() -> None:
        connector.ensure("signer")

    revive()
    return Signer(lambda: connector.open("signer"), token, revive, keeps_ledger=True)


def once_signer(places: Places, socket: Path, token: bytes) -> Signer:
    """A signer that the caller started; only one of this user, in our private runtime folder."""
    facts = socket.lstat() if socket.parent == places.runtime_dir and socket.exists() else None
    if facts is None or not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.getuid():
        raise NotAllowed(f"{socket} is not a signer's socket in {places.runtime_dir}")
    return Signer(lambda: open_channel(socket), token, lambda: None, keeps_ledger=False)
