"""Builds receipts as the journal and the signer do, in one process and without services."""

from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.journal_reader import LineBlocks
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_head, receipt_tail
from bernstein_formats.run_receipt import ReceiptSignature

KEY_ID = "benchmark"
CHUNK_BYTES = 256 * 1024


def write_key(folder: Path) -> tuple[Ed25519PrivateKey, Path]:
    """A key that is no secret, and the file with it."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    path = folder / "key.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return key, path


def build_receipt(sdd: Path, run_id: str, key: Ed25519PrivateKey, output: Path) -> None:
    """Stream a receipt of a run without a spine into `output`; the rows are counted first."""
    journal = sdd / "runs" / run_id / "journal.jsonl"
    count = sum(chunk.count(b"\n") for chunk in chunks_of(journal))
    builder = ReceiptBuilder(run_id, event_count=count)
    with output.open("wb") as file:
        file.write(receipt_head(count))
        for lines in LineBlocks(chunks_of(journal)):
            file.writelines(builder.event_chunks(lines))
        subject = builder.subject()
        public = PublicKey(key.public_key().public_bytes_raw())
        signature = ReceiptSignature(KEY_ID, public, key.sign(subject.preimage()))
        file.write(receipt_tail(subject, builder.spine_entries, signature))


def chunks_of(path: Path) -> Iterator[bytes]:
    """As the store reads a file."""
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
