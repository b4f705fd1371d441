"""Rows in, heads recomputed, ledger checked, payload made, signed. Nothing else is signed."""

import threading
from collections.abc import Callable, Iterator
from itertools import groupby

import grpc

from bernstein_api.signer.v1 import signer_pb2 as pb
from bernstein_api.signer.v1 import signer_pb2_grpc as grpc_pb
from bernstein_formats.errors import (
    Broken,
    Conflict,
    InvalidInput,
    KeyUnusable,
    LedgerRefused,
    Unavailable,
)
from bernstein_formats.mac import MacKeys
from bernstein_formats.paths import check_run_id
from bernstein_formats.public_key import PublicKey
from bernstein_formats.seal import ReceiptMade, Seal, check_origin, check_seal, parse_seal
from bernstein_runtime.caller import origin_of_call
from bernstein_signer.key import Key
from bernstein_signer.ledger import Ledger, Run
from bernstein_signer.ledgers import LedgerOf
from bernstein_signer.mac_rows import AuditLogRows, range_rows
from bernstein_signer.mac_service import MacCalls
from bernstein_signer.policy import Policy, Signs
from bernstein_signer.rows import Receipt, Rows
from bernstein_signer.session_receipt import make_manifest
from bernstein_signer.streams import check_still_there, parts_of

NAME = pb.DESCRIPTOR.services_by_name["SignerService"].full_name


class ResidentSigner(MacCalls):
    """A project's or a fleet's: seals with its own key, signs receipts with the configured one."""

    def __init__(
        self,
        ledger_of: LedgerOf,
        seal_key: Key,
        receipt_key: Callable[[], Key],
        mac_keys: Callable[[], MacKeys],
        policy: Callable[[], Policy | None] = lambda: None,
    ) -> None:
        """`policy` gives the newest one; without any, who may call may have all signed."""
        self._policy = policy
        self._ledger_of = ledger_of
        self._seal_key = seal_key
        self._receipt_key = receipt_key
        self._mac_keys = mac_keys

    def SealRun(
        self, request_iterator: Iterator[pb.SealRunRequest], context: grpc.ServicerContext
    ) -> pb.SealRunResponse:
        """See the .proto."""
        parts = parts_of(request_iterator)
        first = next(parts, pb.SealRunRequest())
        if first.WhichOneof("part") != "run":
            raise InvalidInput("the first message of SealRun must name the run")
        ledger, run = self._admitted(first.run, Signs.SEAL)
        known = ledger.find_run(run)
        rows = Rows(run, known)
        for kind, group in groupby(parts, lambda part: part.WhichOneof("part")):
            if kind != "journal":
                raise InvalidInput("after its first message SealRun takes journal bytes only")
            rows.take_journal(part.journal for part in group)
        if rows.journal_bytes != first.run.journal_size_bytes:
            raise Unavailable(
                f"run {run.run_id}: {first.run.journal_size_bytes} journal bytes were announced, "
                f"{rows.journal_bytes} came"
            )
        head = rows.head()
        check_still_there(context)
        seal = ledger.seal(run, head, known)
        return pb.SealRunResponse(
            seal_json=seal.file_bytes(),
            head_hash=bytes.fromhex(head.head_hash),
            row_count=head.event_count,
        )

    def BuildReceipt(
        self, request_iterator: Iterator[pb.BuildReceiptRequest], context: grpc.ServicerContext
    ) -> pb.BuildReceiptResponse:
        """See the .proto. Rows beyond the newest seal are sealed first."""
        parts = parts_of(request_iterator)
        header = _receipt_header(parts)
        key = self._receipt_key()
        ledger, run = self._admitted(header.run, Signs.SEAL)
        self._check(Signs.RECEIPT, run, key.key_id)
        if header.seal_json:
            _check_reaches(ledger, run, header.seal_json)
        known = ledger.find_run(run)
        audit_log = _range_rows(header, run, self._mac_keys)
        rows = _receipt_rows(Rows(run, known, header.row_count, audit_log), parts)
        head = rows.head()
        check_still_there(context)
        ledger.seal(run, head, known)
        receipt = rows.sign(key)
        ledger.note_receipt(run, head, ReceiptMade(receipt.sha256.hex(), key.key_id))
        return _response(receipt, key)

    def FindSeal(
        self, request: pb.FindSealRequest, context: grpc.ServicerContext
    ) -> pb.FindSealResponse:
        """See the .proto."""
        run = _named_run(request.origin, request.run_id)
        found = self._ledger_of(run.origin).find_seal(run)
        return pb.FindSealResponse(seal_json=found.file_bytes() if found else b"")

    def FindReceipt(
        self, request: pb.FindReceiptRequest, context: grpc.ServicerContext
    ) -> pb.FindReceiptResponse:
        """See the .proto."""
        run = _named_run(request.origin, request.run_id)
        is_known = self._ledger_of(run.origin).has_receipt(run, request.receipt_sha256.hex())
        try:
            key = self._receipt_key().public_pem()
        except KeyUnusable:
            key = b""
        return pb.FindReceiptResponse(is_known=is_known, public_key_pem=key)

    def GetSealKey(
        self, request: pb.GetSealKeyRequest, context: grpc.ServicerContext
    ) -> pb.GetSealKeyResponse:
        """See the .proto."""
        return pb.GetSealKeyResponse(public_key_pem=self._seal_key.public_pem())

    def SignSessionReceipt(
        self,
        request_iterator: Iterator[pb.SignSessionReceiptRequest],
        context: grpc.ServicerContext,
    ) -> pb.SignSessionReceiptResponse:
        """Refused: whoever wants a session signed names the key."""
        raise InvalidInput("session receipts are signed by a signer that was started for them")

    def _admit_mac(self, context: grpc.ServicerContext) -> None:
        policy = self._policy()
        if policy is not None:
            policy.check(Signs.MAC, origin_of_call(context))

    def _check(self, what: Signs, run: Run, key_id: str = "") -> None:
        """Raises NotAllowed."""
        policy = self._policy()
        if policy is not None:
            policy.check(what, run.origin, run.run_id, key_id)

    def _admitted(self, header: pb.RunHeader, what: Signs) -> tuple[Ledger, Run]:
        """The run and its ledger, once policy, header and checkpoint hold."""
        run = _run(header)
        self._check(what, run)
        ledger = self._ledger_of(run.origin)
        if header.checkpoint_json:
            _check_reaches(ledger, run, header.checkpoint_json)
        return ledger, run


class _ReceiptsOnly(grpc_pb.SignerServiceServicer):
    """Refuses every other call: a signer without a ledger could only answer wrongly."""

    def SealRun(
        self, request_iterator: Iterator[pb.SealRunRequest], context: grpc.ServicerContext
    ) -> pb.SealRunResponse:
        """Refused."""
        raise _not_here()

    def FindSeal(
        self, request: pb.FindSealRequest, context: grpc.ServicerContext
    ) -> pb.FindSealResponse:
        """Refused."""
        raise _not_here()

    def FindReceipt(
        self, request: pb.FindReceiptRequest, context: grpc.ServicerContext
    ) -> pb.FindReceiptResponse:
        """Refused."""
        raise _not_here()

    def GetSealKey(
        self, request: pb.GetSealKeyRequest, context: grpc.ServicerContext
    ) -> pb.GetSealKeyResponse:
        """Refused."""
        raise _not_here()

    def MacSpineEntry(
        self, request: pb.MacSpineEntryRequest, context: grpc.ServicerContext
    ) -> pb.MacSpineEntryResponse:
        """Refused."""
        raise _not_here()

    def MacAuditEvent(
        self, request: pb.MacAuditEventRequest, context: grpc.ServicerContext
    ) -> pb.MacAuditEventResponse:
        """Refused."""
        raise _not_here()

    def VerifySpine(
        self, request_iterator: Iterator[pb.VerifySpineRequest], context: grpc.ServicerContext
    ) -> pb.VerifySpineResponse:
        """Refused."""
        raise _not_here()

    def VerifyAuditLog(
        self, request_iterator: Iterator[pb.VerifyAuditLogRequest], context: grpc.ServicerContext
    ) -> pb.VerifyAuditLogResponse:
        """Refused."""
        raise _not_here()


def _not_here() -> InvalidInput:
    return InvalidInput("this signer was started for one receipt and keeps no ledger")


class OnceSigner(_ReceiptsOnly):
    """A signer for one receipt: it has the caller's key, no ledger, and remembers nothing."""

    def __init__(
        self,
        key: Key,
        seal_key: PublicKey | None,
        mac_keys: Callable[[], MacKeys],
    ) -> None:
        """`seal_key` is the resident signer's, where it is known."""
        self._key = key
        self._seal_key = seal_key
        self._mac_keys = mac_keys
        self._lock = threading.Lock()
        self.is_done = False

    def BuildReceipt(
        self, request_iterator: Iterator[pb.BuildReceiptRequest], context: grpc.ServicerContext
    ) -> pb.BuildReceiptResponse:
        """See the .proto. The rows must be exactly those of the seal."""
        parts = parts_of(request_iterator)
        header = _receipt_header(parts)
        run = _run(header.run)
        sealed = self._seal_of(run, header.seal_json).entry
        audit_log = _range_rows(header, run, self._mac_keys)
        rows = _receipt_rows(Rows(run, sealed, header.row_count, audit_log), parts)
        rows.check_all_sealed()
        check_still_there(context)
        self._use_up()
        return _response(rows.sign(self._key), self._key)

    def SignSessionReceipt(
        self,
        request_iterator: Iterator[pb.SignSessionReceiptRequest],
        context: grpc.ServicerContext,
    ) -> pb.SignSessionReceiptResponse:
        """See the .proto."""
        parts = parts_of(request_iterator)
        header = next(parts, pb.SignSessionReceiptRequest()).header
        manifest = make_manifest(
            header.agent_id,
            header.created_at,
            header.version,
            header.step_count,
            (part.journal for part in parts),
        )
        check_still_there(context)
        self._use_up()
        signed = manifest.signed_bytes()
        return pb.SignSessionReceiptResponse(
            manifest_json=signed,
            signature=self._key.sign(signed),
            public_key=self._key.public_key.raw,
            key_id=self._key.key_id,
        )

    def _use_up(self) -> None:
        """One receipt a signer. Raises Conflict for the second one."""
        with self._lock:
            if self.is_done:
                raise Conflict("this signer has signed its one receipt; start another one")
            self.is_done = True

    def _seal_of(self, run: Run, seal_json: bytes) -> Seal:
        if not seal_json:
            raise InvalidInput(f"run {run.run_id} has no seal; finish the run first")
        seal = parse_seal(seal_json)
        check_seal(seal, self._seal_key)
        body = seal.entry.body
        if Run(body.origin, body.run_id) != run:
            raise LedgerRefused(
                f"the seal given for run {run.run_id} of {run.origin} is that of run "
                f"{body.run_id} of {body.origin}; restore the run's own seal.json",
                run_id=run.run_id,
            )
        return seal


def registration(signer: grpc_pb.SignerServiceServicer) -> Callable[[grpc.Server], str]:
    """What `serve` calls to have `signer` served."""

    def register(server: grpc.Server) -> str:
        grpc_pb.add_SignerServiceServicer_to_server(signer, server)
        return NAME

    return register


def _receipt_header(parts: Iterator[pb.BuildReceiptRequest]) -> pb.ReceiptHeader:
    first = next(parts, pb.BuildReceiptRequest())
    if first.WhichOneof("part") != "header":
        raise InvalidInput("the first message of BuildReceipt must be its header")
    return first.header


def _run(header: pb.RunHeader) -> Run:
    return _named_run(header.origin, header.run_id)


def _named_run(origin: str, run_id: str) -> Run:
    check_run_id(run_id)
    check_origin(origin)
    return Run(origin, run_id)


def _check_reaches(ledger: Ledger, run: Run, seal_json: bytes) -> None:
    try:
        seal = parse_seal(seal_json)
    except Broken as error:
        raise LedgerRefused(
            f"run {run.run_id}: the seal that was sent along is no proof of what was sealed: "
            f"{error.message}; restore the journal's own files",
            run_id=run.run_id,
        ) from error
    ledger.check_reaches(seal)


def _range_rows(
    header: pb.ReceiptHeader, run: Run, mac_keys: Callable[[], MacKeys]
) -> AuditLogRows | None:
    """What takes the audit log, where the header asks for a window of it."""
    if not header.HasField("audit_window"):
        return None
    window = header.audit_window
    return range_rows(window.since, window.until, run.run_id, mac_keys(), own_only=window.own_only)


def _receipt_rows(rows: Rows, parts: Iterator[pb.BuildReceiptRequest]) -> Rows:
    for (kind, segment), group in groupby(
        parts, lambda part: (part.WhichOneof("part"), part.audit.segment)
    ):
        if kind == "audit":
            rows.take_audit(segment, (part.audit.data for part in group))
        elif kind == "journal":
            rows.take_journal(part.journal for part in group)
        elif kind == "spine":
            rows.take_spine(part.spine for part in group)
        else:
            raise InvalidInput("after its header BuildReceipt takes stored bytes only")
    return rows


def _response(receipt: Receipt, key: Key) -> pb.BuildReceiptResponse:
    return pb.BuildReceiptResponse(
        signature=receipt.signature,
        cose_signature=receipt.cose_signature,
        public_key=key.public_key.raw,
        key_id=key.key_id,
        receipt_sha256=receipt.sha256,
        audit_macs=receipt.audit_macs,
    )
