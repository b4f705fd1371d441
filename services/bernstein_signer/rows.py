"""A run's rows as they arrive: recomputed, and held against what was sealed of the run before."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from bernstein_formats.audit_range import AuditRange
from bernstein_formats.errors import InvalidInput, LedgerRefused
from bernstein_formats.journal_reader import LineBlocks, bounded
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_cose_preimage, receipt_head, receipt_tail
from bernstein_formats.run_receipt import ReceiptSignature, ReceiptSubject
from bernstein_formats.seal import Entry
from bernstein_signer.key import Key
from bernstein_signer.ledger import Head, Run, head_of
from bernstein_signer.mac_rows import AuditLogRows


@dataclass(frozen=True, slots=True)
class Receipt:
    """Both signatures over a run, and the digest of the receipt file that they make."""

    signature: bytes
    cose_signature: bytes
    sha256: bytes
    audit_macs: bytes


class Rows:
    """Takes the audit log if it is asked for, then the journal, then the spine, as stored bytes.

    Grows with the spine and the audit range only.
    """

    def __init__(
        self,
        run: Run,
        sealed: Entry | None,
        row_count: int | None = None,
        audit_log: AuditLogRows | None = None,
    ) -> None:
        """`sealed` is the run's newest seal; `row_count` is what a receipt announces."""
        self._run = run
        self._sealed = None if sealed is None else head_of(sealed)
        self._announced = row_count
        self._builder = ReceiptBuilder(run.run_id)
        self._audit_log = audit_log
        self._audit: AuditRange | None = None
        self._digest = sha256()
        self._has_journal = False
        self._count = 0
        self._has_spine = False
        self.journal_bytes = 0

    def take_audit(self, segment: str, chunks: Iterable[bytes]) -> None:
        """Take a segment of the audit log, which comes first. Raises what is wrong with it."""
        if self._audit_log is None or self._has_journal:
            raise InvalidInput("audit bytes came without a window, or after the journal's")
        self._audit_log.take_segment(segment, bounded(chunks))

    def take_journal(self, chunks: Iterable[bytes]) -> None:
        """Take the journal. Raises LedgerRefused where it departs from the sealed rows."""
        if self._has_spine:
            raise InvalidInput("journal bytes came after the spine's; send the journal first")
        if not self._has_journal:
            self._begin()
        for block in LineBlocks(self._counted(chunks)):
            for chunk in self._builder.event_chunks(block):
                self._digest.update(chunk)
                self._count += 1
                if self._sealed is not None and self._count == self._sealed.event_count:
                    self._check_sealed_head(self._sealed)

    def _begin(self) -> None:
        self._has_journal = True
        if self._audit_log is not None:
            self._audit = self._audit_log.audit_range()
        block = self._audit.block if self._audit else b""
        self._digest.update(receipt_head(self._announced or 0, audit_block=block))

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.journal_bytes += len(chunk)
            yield chunk

    def take_spine(self, chunks: Iterable[bytes]) -> None:
        """Take the spine, which comes last."""
        self._has_spine = True
        for block in LineBlocks(chunks):
            for line in block:
                self._builder.add_spine_line(line)

    def head(self) -> Head:
        """Where the rows end, all being there; else the refusal of the first rule they break."""
        subject = self._builder.subject()
        if self._announced not in {None, subject.event_count}:
            raise InvalidInput(
                f"run {self._run.run_id}: {self._announced} rows were announced, "
                f"{subject.event_count} came",
                run_id=self._run.run_id, event_count=subject.event_count,
            )  # fmt: skip
        head = Head(subject.event_count, subject.journal_head)
        if self._sealed is not None and head.event_count < self._sealed.event_count:
            raise self._refused(self._sealed, head, "rows were cut off its end")
        return head

    def check_all_sealed(self) -> None:
        """Raise LedgerRefused if rows follow the sealed ones."""
        head = self.head()
        if self._sealed is not None and head != self._sealed:
            raise self._refused(self._sealed, head, "rows were added since")

    def sign(self, key: Key) -> Receipt:
        """The receipt over all rows."""
        subject = self._subject()
        signature = key.sign(subject.preimage())
        made = ReceiptSignature(key.key_id, key.public_key, signature)
        self._digest.update(receipt_tail(subject, self._builder.spine_entries, made))
        cose_signature = key.sign(receipt_cose_preimage(subject, key.key_id))
        macs = self._audit.macs if self._audit else b""
        return Receipt(signature, cose_signature, self._digest.digest(), macs)

    def _subject(self) -> ReceiptSubject:
        subject = self._builder.subject()
        return replace(subject, audit=self._audit.binding) if self._audit else subject

    def _check_sealed_head(self, sealed: Head) -> None:
        subject = self._builder.subject()
        head = Head(subject.event_count, subject.journal_head)
        if head != sealed:
            raise self._refused(sealed, head, "rows were changed")

    def _refused(self, sealed: Head, head: Head, what: str) -> LedgerRefused:
        return LedgerRefused(
            f"run {self._run.run_id} of {self._run.origin}: {sealed.event_count} rows with head "
            f"{sealed.head_hash} were sealed, now {head.event_count} have head {head.head_hash}: "
            f"{what}; restore the sealed journal",
            run_id=self._run.run_id, origin=self._run.origin,
            sealed_count=sealed.event_count, sealed_head=sealed.head_hash,
            event_count=head.event_count, head_hash=head.head_hash,
        )  # fmt: skip
