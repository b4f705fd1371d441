"""Verifies a session receipt from its bytes alone.

Rules: docs/formats/session-journal.md, section 10. What has no place in an archive is refused
(ReceiptMalformed); what its parts say of one another is a verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_formats.errors import InvalidInput, LimitExceeded, ReceiptMalformed, RowMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.public_key import PublicKey, decode_base64
from bernstein_formats.session_archive import (
    MANIFEST,
    SIGNATURE,
    Member,
    Readable,
    blob_name,
    is_as_written,
    journals,
    members,
)
from bernstein_formats.session_journal import as_text, blob_refs
from bernstein_formats.session_journal_reader import Fault, FaultKind, numbered_rows
from bernstein_formats.session_journal_verify import Walk, short
from bernstein_formats.session_receipt import SessionManifest, parse_manifest

_MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
_SIGNATURE_BYTES_MAX: Final = 1024
_NOT_AS_WRITTEN: Final = (
    "the archive's members are in another order, or have other headers, than a writer gives them,"
    " so its bytes are not those that were exported"
)
# What nobody vouches for while there is no signature that was checked.
_UNSIGNED: Final = ("agent_id", "bernstein_version", "created_at")


@dataclass(frozen=True, slots=True)
class SessionReceiptVerdict:
    """The verdict: the chain as walked, what is wrong, and what nobody vouches for."""

    head_hash: str
    steps: int
    faults: tuple[Fault, ...]
    fault_count: int
    signed: bool
    manifest: SessionManifest
    # Blobs that rows refer to and that are not in the archive; the chain is whole without them.
    missing_blobs: tuple[str, ...]
    unauthenticated: tuple[str, ...]
    # What is not as a writer lays it out, although all of it verifies.
    layout_findings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.fault_count


def verify_session_receipt(
    archive: Readable, key: PublicKey | None = None, expected_head: str | None = None
) -> SessionReceiptVerdict:
    """Verify a receipt. With a key, it must be signed. Raises ReceiptMalformed."""
    found = members(archive)
    by_name = {member.name: member for member in found}
    manifest = parse_manifest(_content(archive, by_name, MANIFEST, _MANIFEST_BYTES_MAX))
    walk = Walk("journal line")
    signature = by_name.get(SIGNATURE)
    for fault in _signature_faults(archive, signature, key, manifest):
        walk.note(fault)
    referred = _walked(archive, journals(found), walk)
    for fault in _manifest_faults(manifest, walk, referred, expected_head):
        walk.note(fault)
    for fault in _blob_faults(archive, found, referred):
        walk.note(fault)
    verdict = walk.verdict()
    as_written = is_as_written(archive, found, referred)
    trusted = signature is not None and key is not None
    return SessionReceiptVerdict(
        head_hash=verdict.head_hash,
        steps=verdict.steps,
        faults=verdict.faults,
        fault_count=verdict.fault_count,
        signed=signature is not None,
        manifest=manifest,
        missing_blobs=tuple(ref for ref in referred if blob_name(ref) not in by_name),
        unauthenticated=(*(() if trusted else _UNSIGNED), *manifest.unknown),
        layout_findings=() if as_written else (_NOT_AS_WRITTEN,),
    )


def _content(archive: Readable, by_name: dict[str, Member], name: str, limit: int) -> bytes:
    if name not in by_name:
        raise ReceiptMalformed(f"the receipt has no {name}")
    member = by_name[name]
    if member.size > limit:
        raise LimitExceeded(f"{name} has {member.size} bytes; at most {limit} are read")
    return member.content(archive)


def _signature_faults(
    archive: Readable, member: Member | None, key: PublicKey | None, manifest: SessionManifest
) -> Iterator[Fault]:
    if member is None:
        if key is not None:
            kind = FaultKind.SIGNATURE_MISSING
            yield Fault(kind, None, "a key was given, and the receipt carries no signature")
    elif key is None:
        kind = FaultKind.SIGNATURE_WITHOUT_VERIFIER
        yield Fault(kind, None, "the receipt is signed: give the signer's key with --public-key")
    elif not _verifies(archive, member, key, manifest):
        yield Fault(FaultKind.SIGNATURE_BAD, None, "the manifest's signature is not that key's")


def _verifies(archive: Readable, member: Member, key: PublicKey, manifest: SessionManifest) -> bool:
    if member.size > _SIGNATURE_BYTES_MAX:
        return False
    try:
        signature = decode_base64(member.content(archive).decode("ascii"))
    except (InvalidInput, UnicodeDecodeError):
        return False
    return key.verifies(signature, manifest.signed_bytes())


def _walked(archive: Readable, found: Sequence[Member], walk: Walk) -> tuple[str, ...]:
    """Walk the journal; gives what its rows refer to, each once, in order."""
    if not found:
        raise ReceiptMalformed("the receipt has no journal")
    referred: dict[str, None] = {}
    for number, row in numbered_rows(_joined(archive, found)):
        walk.take(number, row)
        if isinstance(row, dict):
            referred.update(dict.fromkeys(_refs(row, number, walk)))
    return tuple(referred)


def _joined(archive: Readable, found: Sequence[Member]) -> Iterator[bytes]:
    """The members' bytes, a line feed between them where one is missing."""
    for member in found:
        yield from member.pieces(archive)
        if member.size and archive[member.start + member.size - 1] != ord("\n"):
            yield b"\n"


def _refs(row: Row, number: int, walk: Walk) -> list[str]:
    try:
        return list(map(as_text, blob_refs(row)))
    except RowMalformed as error:
        kind = FaultKind.MANIFEST_BLOBS
        walk.note(Fault(kind, number, f"journal line {number}: {error.message}"))
        return []


def _manifest_faults(
    manifest: SessionManifest, walk: Walk, referred: tuple[str, ...], expected_head: str | None
) -> Iterator[Fault]:
    head = walk.head_hash
    if manifest.head_hash != head:
        text = f"manifest head mismatch: {short(manifest.head_hash)} vs walked {short(head)}"
        yield Fault(FaultKind.MANIFEST_HEAD, None, text)
    if manifest.steps != walk.steps:
        text = f"manifest step count mismatch: {manifest.steps} vs walked {walk.steps}"
        yield Fault(FaultKind.MANIFEST_STEPS, None, text)
    if manifest.head_hash == head and manifest.blob_digests != referred:
        text = "the manifest lists other blobs than the rows refer to"
        yield Fault(FaultKind.MANIFEST_BLOBS, None, text)
    if expected_head is not None and expected_head != head:
        text = f"expected head {short(expected_head)} but walked {short(head)}"
        yield Fault(FaultKind.EXPECTED_HEAD, None, text)


def _blob_faults(
    archive: Readable, found: Sequence[Member], referred: tuple[str, ...]
) -> Iterator[Fault]:
    names = {blob_name(digest) for digest in referred}
    for member in found:
        if not member.name.startswith("blobs/"):
            continue
        if member.name not in names:
            text = f"no row refers to the member {member.name}"
            yield Fault(FaultKind.BLOB_UNLISTED, None, text)
        hashed = sha256()
        for piece in member.pieces(archive):
            hashed.update(piece)
        if blob_name(hashed.hexdigest()) != member.name:
            text = f"the bytes of {member.name} do not hash to its name"
            yield Fault(FaultKind.BLOB_DIGEST, None, text)
