"""Building a receipt: we make its bytes from the stored rows, the signer its signatures.

Both compute the file's SHA-256 by the same code from the same stored bytes, and both must agree.
Memory does not grow with the run: the embedded rows wait in a temporary file.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import IO

from bernstein_formats import paths
from bernstein_formats.audit_log import AuditWalk, segment_lines
from bernstein_formats.audit_range import AuditSelection, AuditWindow, given_macs
from bernstein_formats.errors import JournalError, SignatureWrong
from bernstein_formats.journal_reader import LineBlocks
from bernstein_formats.journal_verdict import JournalSeal
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_cose, receipt_head, receipt_tail
from bernstein_formats.run_receipt import ReceiptSignature, ReceiptSubject
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.audit_files import AuditFiles
from bernstein_journal.sealing import Sealer, is_incomplete
from bernstein_journal.signer import AuditRows, SignedReceipt, Signer
from bernstein_runtime.limits import CHUNK_BYTES
from bernstein_runtime.progress import Report
from bernstein_store.store import Store


@dataclass(frozen=True, slots=True)
class Receipt:
    """A built receipt: what it binds, and its bytes, to be taken once."""

    subject: ReceiptSubject
    key_id: str
    cose: bytes
    sha256: bytes
    size_bytes: int
    parts: Iterator[bytes]
    # Events in the audit range that do not name the run.
    foreign_event_count: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a receipt takes from the audit log."""

    window: AuditWindow
    own_only: bool


@dataclass(frozen=True, slots=True)
class KnownReceipt:
    """What the signer knows of a receipt that somebody has."""

    is_known: bool
    is_sealed: bool
    public_key_pem: bytes


class ReceiptMaker:
    """Builds receipts; safe for any number of threads."""

    def __init__(
        self,
        store: Store,
        state_dir: Path,
        origin: str,
        sealer: Sealer,
        sealed: Callable[[str], JournalSeal | None],
    ) -> None:
        """`sealed` gives what seal.json commits to; JournalError where it is worth nothing."""
        self._store = store
        self._state_dir = state_dir
        self._origin = origin
        self._sealer = sealer
        self._sealed = sealed
        self._audit = AuditFiles(store)
        self._rows = AcknowledgedRows(store)

    def build(
        self,
        run_id: str,
        signer: Callable[[], Signer],
        report: Report,
        wanted: Wanted | None = None,
        *,
        unfinished: bool = False,
    ) -> Receipt:
        """Raises what BuildReceipt fails with. Nothing is stored yet."""
        if not unfinished and is_incomplete(self._store, run_id):
            raise _unfinished(run_id)
        seal = self._sealed(run_id)
        journal_name, spine_name = paths.journal_path(run_id), paths.spine_path(run_id)
        self._rows.check(journal_name)
        self._rows.check(spine_name)
        journal_size = self._store.size(journal_name) or 0
        spine_size = self._store.size(spine_name) or 0

        def journal() -> Iterator[bytes]:
            return self._store.read(journal_name, 0, journal_size)

        def spine() -> Iterator[bytes]:
            return self._store.read(spine_name, 0, spine_size)

        builder = ReceiptBuilder(run_id)
        events = tempfile.TemporaryFile(dir=self._state_dir)  # noqa: SIM115 - the receipt closes it
        self._embed(builder, journal(), journal_size, events, report)
        for lines in LineBlocks(spine()):
            for line in lines:
                builder.add_spine_line(line)
        subject = builder.subject()
        _check_sealed(run_id, seal, subject)
        audit = None if wanted is None else self._selected(run_id, wanted)
        seal_json = self._sealer.seal_for_receipt(run_id, journal_size)
        signed = signer().sign_receipt(
            origin=self._origin,
            run_id=run_id,
            row_count=subject.event_count,
            seal_json=seal_json,
            journal=journal,
            spine=spine,
            audit=audit.rows if audit else None,
        )
        block, foreign_count = b"", 0
        if audit is not None:
            built = audit.selection.built(given_macs(signed.audit_macs))
            subject, block = replace(subject, audit=built.binding), built.block
            foreign_count = audit.selection.foreign_count
        receipt = _receipt(subject, builder.spine_entries, signed, events, block)
        return replace(receipt, foreign_event_count=foreign_count)

    def check(self, run_id: str, receipt_sha256: bytes, signer: Signer) -> KnownReceipt:
        """Ask the signer's ledger. Raises Unavailable, LedgerRefused."""
        is_known, key = signer.find_receipt(self._origin, run_id, receipt_sha256)
        return KnownReceipt(is_known, bool(signer.find_seal(self._origin, run_id)), key)

    def _selected(self, run_id: str, wanted: Wanted) -> "_Selected":
        """The events of the window. The signer checks their MACs; everything else is checked here.

        Raises RowMalformed, ChainBroken for the first line that is not the log's own, RowsMissing
        where events are gone from its end.
        """
        self._rows.check_audit_log()
        segments = self._audit.segments()
        selection = AuditSelection(wanted.window, run_id, own_only=wanted.own_only)
        walk = AuditWalk(None)
        for segment in segments:
            walk.begin_segment(segment.name)
            for line in segment_lines(self._audit.read(segment)):
                row = walk.add(line)
                if row is not None:
                    selection.add(row)

        def read() -> Iterator[tuple[str, Iterator[bytes]]]:
            return ((segment.name, self._audit.read(segment)) for segment in segments)

        return _Selected(selection, AuditRows(wanted.window, wanted.own_only, read))

    def _embed(
        self,
        builder: ReceiptBuilder,
        journal: Iterator[bytes],
        size: int,
        events: IO[bytes],
        report: Report,
    ) -> None:
        done = 0
        for lines in LineBlocks(journal):
            events.writelines(builder.event_chunks(lines))
            done += sum(map(len, lines)) + len(lines)
            report(done, size)


def _unfinished(run_id: str) -> JournalError:
    return JournalError(
        f"run {run_id} was begun here and is not finished: it goes on, or rows may be missing"
        " behind its last one; if nothing follows, end it as it is with"
        f" `bernstein services seal --abandoned {run_id}`; or sign what is there with --unfinished",
        run_id=run_id,
    )


def _check_sealed(run_id: str, seal: JournalSeal | None, subject: ReceiptSubject) -> None:
    if seal is None or (seal.event_count, seal.head) == (
        subject.event_count,
        subject.journal_head,
    ):
        return
    raise JournalError(
        f"run {run_id}: its seal commits to {seal.event_count} rows with head {seal.head}, and the"
        f" journal holds {subject.event_count} with head {subject.journal_head or '(none)'};"
        " restore the journal from a copy",
        run_id=run_id,
    )


@dataclass(frozen=True, slots=True)
class _Selected:
    """The events of a range, and how the signer comes by them."""

    selection: AuditSelection
    rows: AuditRows


def _receipt(
    subject: ReceiptSubject,
    spine_entries: list[bytes],
    signed: SignedReceipt,
    events: IO[bytes],
    audit_block: bytes,
) -> Receipt:
    key = PublicKey(signed.public_key)
    if not key.verifies(signed.signature, subject.preimage()):
        raise SignatureWrong("the signer's answer does not verify; nothing was stored")
    head = receipt_head(subject.event_count, audit_block=audit_block)
    tail = receipt_tail(
        subject, spine_entries, ReceiptSignature(signed.key_id, key, signed.signature)
    )

    def parts() -> Iterator[bytes]:
        yield head
        events.seek(0)
        while chunk := events.read(CHUNK_BYTES):
            yield chunk
        yield tail

    digest, size = sha256(), 0
    for part in parts():
        digest.update(part)
        size += len(part)
    if digest.digest() != signed.receipt_sha256:
        raise SignatureWrong("the signer saw other rows than we did; nothing was stored")
    return Receipt(
        subject=subject,
        key_id=signed.key_id,
        cose=receipt_cose(subject, signed.key_id, signed.cose_signature),
        sha256=digest.digest(),
        size_bytes=size,
        parts=parts(),
    )
