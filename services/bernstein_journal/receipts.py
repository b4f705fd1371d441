"""Building a receipt: we make its bytes from the stored rows, the signer its signatures.

Both compute the file's SHA-256 by the same code from the same stored bytes, and both must agree.
Memory does not grow with the run: the embedded rows wait in a temporary file.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from bernstein_formats import paths
from bernstein_formats.errors import SignatureWrong
from bernstein_formats.journal_reader import LineBlocks
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_cose, receipt_head, receipt_tail
from bernstein_formats.run_receipt import ReceiptSignature, ReceiptSubject
from bernstein_journal.sealing import Sealer
from bernstein_journal.signer import SignedReceipt, Signer
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


class ReceiptMaker:
    """Builds receipts; safe for any number of threads."""

    def __init__(self, store: Store, state_dir: Path, origin: str, sealer: Sealer) -> None:
        self._store = store
        self._state_dir = state_dir
        self._origin = origin
        self._sealer = sealer

    def build(self, run_id: str, signer: Callable[[], Signer], report: Report) -> Receipt:
        """Raises what BuildReceipt fails with. Nothing is stored yet."""
        journal_name, spine_name = paths.journal_path(run_id), paths.spine_path(run_id)
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
        seal_json = self._sealer.seal(run_id, journal_size)
        signed = signer().sign_receipt(
            origin=self._origin,
            run_id=run_id,
            row_count=subject.event_count,
            seal_json=seal_json,
            journal=journal,
            spine=spine,
        )
        return _receipt(subject, builder.spine_entries, signed, events)

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


def _receipt(
    subject: ReceiptSubject, spine_entries: list[bytes], signed: SignedReceipt, events: IO[bytes]
) -> Receipt:
    key = PublicKey(signed.public_key)
    if not key.verifies(signed.signature, subject.preimage()):
        raise SignatureWrong("the signer's answer does not verify; nothing was stored")
    head = receipt_head(subject.event_count)
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
