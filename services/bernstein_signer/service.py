"""Rows in, heads recomputed, ledger checked, payload made, signed. Nothing else is signed."""

import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeVar

import grpc

from bernstein_api.signer.v1 import signer_pb2 as pb
from bernstein_api.signer.v1 import signer_pb2_grpc as grpc_pb
from bernstein_formats.errors import (
    Broken,
    Conflict,
    InvalidInput,
    LedgerRefused,
    Unavailable,
)
from bernstein_formats.paths import check_run_id
from bernstein_formats.public_key import PublicKey
from bernstein_formats.seal import ReceiptMade, Seal, check_origin, check_seal, parse_seal
from bernstein_signer.key import Key
from bernstein_signer.ledger import Ledger, Run
from bernstein_signer.rows import Receipt, Rows

NAME = pb.DESCRIPTOR.services_by_name["SignerService"].full_name
Part = TypeVar("Part", pb.SealRunRequest, pb.BuildReceiptRequest)


class ResidentSigner(grpc_pb.SignerServiceServicer):
    """The project's signer: seals with its own key, and signs receipts with the configured one."""

    def __init__(self, ledger: Ledger, receipt_key: Callable[[], Key]) -> None:
        self._ledger = ledger
        self._receipt_key = receipt_key

    def SealRun(
        self, request_iterator: Iterator[pb.SealRunRequest], context: grpc.ServicerContext
    ) -> pb.SealRunResponse:
        """See the .proto."""
        parts = _parts(request_iterator)
        first = next(parts, pb.SealRunRequest())
        if first.WhichOneof("part") != "run":
            raise InvalidInput("the first message of SealRun must name the run")
        run = self._admitted(first.run)
        known = self._ledger.find_run(run)
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
        _check_still_there(context)
        seal = self._ledger.seal(run, head, known)
        return pb.SealRunResponse(
            seal_json=seal.file_bytes(),
            head_hash=bytes.fromhex(head.head_hash),
            row_count=head.event_count,
        )

    def BuildReceipt(
        self, request_iterator: Iterator[pb.BuildReceiptRequest], context: grpc.ServicerContext
    ) -> pb.BuildReceiptResponse:
        """See the .proto. Rows beyond the newest seal are sealed first."""
        parts = _parts(request_iterator)
        header = _receipt_header(parts)
        key = self._receipt_key()
        run = self._admitted(header.run)
        if header.seal_json:
            self._check_reaches(run, header.seal_json)
        known = self._ledger.find_run(run)
        rows = _receipt_rows(Rows(run, known, header.row_count), parts)
        head = rows.head()
        _check_still_there(context)
        self._ledger.seal(run, head, known)
        receipt = rows.sign(key)
        self._ledger.note_receipt(run, head, ReceiptMade(receipt.sha256.hex(), key.key_id))
        return _response(receipt, key)

    def _admitted(self, header: pb.RunHeader) -> Run:
        """The run, once its header and its checkpoint hold."""
        run = _run(header)
        if header.checkpoint_json:
            self._check_reaches(run, header.checkpoint_json)
        return run

    def _check_reaches(self, run: Run, seal_json: bytes) -> None:
        try:
            seal = parse_seal(seal_json)
        except Broken as error:
            raise LedgerRefused(
                f"run {run.run_id}: the seal that was sent along is no proof of what was sealed: "
                f"{error.message}; restore the journal's own files",
                run_id=run.run_id,
            ) from error
        self._ledger.check_reaches(seal)


class OnceSigner(grpc_pb.SignerServiceServicer):
    """A signer for one receipt: it has the caller's key, no ledger, and remembers nothing."""

    def __init__(self, key: Key, seal_key: PublicKey | None) -> None:
        """`seal_key` is the resident signer's, where it is known."""
        self._key = key
        self._seal_key = seal_key
        self._lock = threading.Lock()
        self.is_done = False

    def SealRun(
        self, request_iterator: Iterator[pb.SealRunRequest], context: grpc.ServicerContext
    ) -> pb.SealRunResponse:
        """Refused: a seal without a ledger would say nothing."""
        raise InvalidInput("this signer was started for one receipt and keeps no ledger")

    def BuildReceipt(
        self, request_iterator: Iterator[pb.BuildReceiptRequest], context: grpc.ServicerContext
    ) -> pb.BuildReceiptResponse:
        """See the .proto. The rows must be exactly those of the seal."""
        parts = _parts(request_iterator)
        header = _receipt_header(parts)
        run = _run(header.run)
        sealed = self._seal_of(run, header.seal_json).entry
        rows = _receipt_rows(Rows(run, sealed, header.row_count), parts)
        rows.check_all_sealed()
        _check_still_there(context)
        with self._lock:
            if self.is_done:
                raise Conflict("this signer has signed its one receipt; start another one")
            self.is_done = True
        return _response(rows.sign(self._key), self._key)

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


def _parts(request_iterator: Iterator[Part]) -> Iterator[Part]:
    """The messages of a stream; Unavailable if it ends because its sender went away."""
    try:
        yield from request_iterator
    except grpc.RpcError as error:
        raise Unavailable("the caller went away while it sent rows") from error


def _check_still_there(context: grpc.ServicerContext) -> None:
    # gRPC may show a broken stream as one that ended.
    if not context.is_active():
        raise Unavailable("the caller went away before its rows were answered")


def _receipt_header(parts: Iterator[pb.BuildReceiptRequest]) -> pb.ReceiptHeader:
    first = next(parts, pb.BuildReceiptRequest())
    if first.WhichOneof("part") != "header":
        raise InvalidInput("the first message of BuildReceipt must be its header")
    return first.header


def _run(header: pb.RunHeader) -> Run:
    check_run_id(header.run_id)
    check_origin(header.origin)
    return Run(header.origin, header.run_id)


def _receipt_rows(rows: Rows, parts: Iterator[pb.BuildReceiptRequest]) -> Rows:
    for kind, group in groupby(parts, lambda part: part.WhichOneof("part")):
        if kind == "journal":
            rows.take_journal(part.journal for part in group)
        elif kind == "spine":
            rows.take_spine(part.spine for part in group)
        else:
            raise InvalidInput("after its header BuildReceipt takes journal and spine bytes only")
    return rows


def _response(receipt: Receipt, key: Key) -> pb.BuildReceiptResponse:
    return pb.BuildReceiptResponse(
        signature=receipt.signature,
        cose_signature=receipt.cose_signature,
        public_key=key.public_key.raw,
        key_id=key.key_id,
        receipt_sha256=receipt.sha256,
    )
