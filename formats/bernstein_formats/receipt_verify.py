"""Verifies a run receipt offline: nothing but its own bytes, and a pinned key where one is given.

The order of checks is the peer's (docs/formats/run-receipt.md, section 5); the first failure is
told. What the peer lets pass although nothing covers it becomes a finding, and fails too.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from bernstein_formats.canonical import Profile
from bernstein_formats.cose import parse_cose
from bernstein_formats.errors import (
    BernsteinError,
    ChainBroken,
    InvalidInput,
    KeyUnusable,
    ReceiptMalformed,
    SignatureWrong,
)
from bernstein_formats.journal_reader import Row
from bernstein_formats.public_key import PublicKey, decode_base64, parse_jwk, parse_public_pem
from bernstein_formats.receipt_audit import audit_binding, audit_warnings
from bernstein_formats.receipt_events import EventWalk, FindingReason, ReceiptFinding
from bernstein_formats.receipt_file import receipt_cose_preimage
from bernstein_formats.receipt_lines import CLOCK_MEMBERS
from bernstein_formats.receipt_members import (
    block,
    items,
    member_findings,
    member_warnings,
    require_objects,
)
from bernstein_formats.receipt_read import (
    Content,
    ReceiptDocument,
    canonical_document,
    parsed_document,
)
from bernstein_formats.receipt_verdict import ReceiptStatus, ReceiptTier, ReceiptVerdict
from bernstein_formats.run_receipt import (
    PAYLOAD_TYPE,
    RECEIPT_TYPE,
    SCHEMA_VERSION,
    SCHEMA_VERSION_WINDOW_UNSIGNED,
    AuditBinding,
    ReceiptSubject,
)
from bernstein_formats.spine import SpineWalk

if TYPE_CHECKING:
    from bernstein_formats.receipt_trust import ChainEvidence

_MALFORMED = (InvalidInput, KeyUnusable, ReceiptMalformed)
_TAMPERED = (ChainBroken, SignatureWrong)
_COSE_OF_ANOTHER = "run-receipt.cose beside it is that of another receipt and was not checked"
_NOT_CANONICAL = "the file is not in the receipt's canonical bytes, so its SHA-256 is another"


@dataclass(frozen=True, slots=True)
class _Demands:
    """What a receipt is held against, besides itself."""

    pin: PublicKey | bytes | None
    cose: bytes | None
    chain: "ChainEvidence | None"
    run_id: str | None
    cose_may_be_of_another: bool


def verify_receipt(
    data: Content,
    pin: PublicKey | bytes | None = None,
    cose: bytes | None = None,
    *,
    chain: "ChainEvidence | None" = None,
    expected_run_id: str | None = None,
    cose_may_be_of_another: bool = False,
) -> ReceiptVerdict:
    """Say what a receipt file is worth; never raises, whatever the bytes.

    A pin given as bytes is PEM, read where its turn comes: a tampered receipt is told before an
    unusable pin. With a key chain it is the chain's root, not the receipt's key. `cose` is
    run-receipt.cose, if that is to be checked as well; where several receipts share a folder it may
    belong to another one, which is then a warning.
    """
    demands = _Demands(pin, cose, chain, expected_run_id, cose_may_be_of_another)
    try:
        verdict = _Verification(canonical_document(data), demands).verdict()
        if verdict.ok:
            return verdict
    except InvalidInput:
        pass  # not canonical after all: what the file is instead is decided on the whole
    try:
        document = parsed_document(data[:])
    except InvalidInput as error:
        text = f"the receipt is not one JSON object of unique members: {error.message}"
        return ReceiptVerdict(ReceiptStatus.MALFORMED, errors=(text,))
    return _Verification(document, demands).verdict()


class _Verification:
    """One pass over one document; what is known so far stays here for the verdict."""

    def __init__(self, document: ReceiptDocument, demands: _Demands) -> None:
        self._document = document
        self._demands = demands
        self._receipt = document.members
        self._events = EventWalk(takes_withheld=True)
        self._spine = SpineWalk()
        self._profile = Profile.PY_JSON
        self._findings: list[ReceiptFinding] = []
        self._untrusted = ""
        self._facts = ReceiptVerdict(ReceiptStatus.OK)

    def verdict(self) -> ReceiptVerdict:
        """Check everything; InvalidInput takes back a document read on the way."""
        try:
            self._check()
        except _MALFORMED as error:
            if isinstance(error, InvalidInput) and not self._document.whole:
                raise
            return self._failed(ReceiptStatus.MALFORMED, error.message)
        except _TAMPERED as error:
            return self._failed(ReceiptStatus.TAMPERED, error.message, _journal_step(error))
        if self._untrusted:
            return self._failed(ReceiptStatus.UNTRUSTED_KEY, self._untrusted)
        if self._findings:
            return self._failed(ReceiptStatus.TAMPERED, _finding_text(self._findings))
        pinned = self._demands.pin is not None
        tier = ReceiptTier.PROVENANCE if pinned else ReceiptTier.INTEGRITY_ONLY
        layout = () if self._is_canonical() else (_NOT_CANONICAL,)
        return replace(self._facts, tier=tier, layout_findings=layout)

    def _check(self) -> None:
        demands = self._demands
        self._check_envelope()
        self._check_shape()
        self._check_journal()
        self._check_spine()
        subject = self._check_subject()
        key = self._check_key(demands.pin if demands.chain is None else None)
        self._check_signature(key, subject)
        if demands.cose is not None:
            self._check_cose(demands.cose, key, subject)
        if demands.run_id not in {None, subject.run_id}:
            self._findings.append(ReceiptFinding(FindingReason.RUN_UNEXPECTED, None, "run_id"))
        self._findings += member_findings(self._receipt)
        warnings = (*self._facts.warnings, *member_warnings(self._receipt))
        if self._receipt.get("audit_range") is not None:
            warnings += tuple(audit_warnings(self._receipt["audit_range"]))
        self._facts = replace(self._facts, warnings=warnings)
        if demands.chain is not None:
            self._check_chain(demands.chain, key)

    def _check_envelope(self) -> None:
        receipt = self._receipt
        run_id = receipt.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise ReceiptMalformed("run_id is missing, empty or not text")
        self._facts = replace(self._facts, run_id=run_id)
        if receipt.get("receipt_type") != RECEIPT_TYPE:
            raise ReceiptMalformed(f"receipt_type is not {RECEIPT_TYPE}")
        version = receipt.get("schema_version")
        if version not in (SCHEMA_VERSION, SCHEMA_VERSION_WINDOW_UNSIGNED):
            raise ReceiptMalformed("schema_version is neither 1.1.0 nor 1.0.0")
        self._facts = replace(self._facts, schema_version=str(version))
        profile = receipt.get("hash_profile", Profile.PY_JSON.value)
        if profile not in [known.value for known in Profile]:
            raise ReceiptMalformed("hash_profile is neither py-json-v1 nor jcs-v2")
        self._profile = Profile(str(profile))

    def _check_shape(self) -> None:
        events = items(block(self._receipt, "journal"), "events", "journal")
        entries = items(block(self._receipt, "spine"), "entries", "spine")
        signing = block(self._receipt, "signing")
        if signing.get("payload_type") != PAYLOAD_TYPE:
            raise ReceiptMalformed(f"signing.payload_type is not {PAYLOAD_TYPE}")
        if self._document.whole:
            require_objects(events, "journal.events")
        if not events:
            raise ReceiptMalformed("the receipt has no journal rows, so it says nothing")
        require_objects(entries, "spine.entries")
        self._facts = replace(self._facts, journal_events=len(events), spine_entries=len(entries))

    def _check_journal(self) -> None:
        walk, findings = self._events, self._findings
        for row, write in self._document.rows:
            if "ts" in row or "elapsed_s" in row:
                findings += _clock_findings(row, walk.count)
            walk.add(row, write)
        findings += walk.findings
        journal = block(self._receipt, "journal")
        _require_head(journal, "journal", walk.head)
        _require_count(journal, "journal", "event_count", walk.count)
        self._facts = replace(
            self._facts, journal_events=walk.count, withheld_events=walk.withheld_count
        )

    def _check_spine(self) -> None:
        spine = block(self._receipt, "spine")
        for entry in items(spine, "entries", "spine"):
            if isinstance(entry, dict):
                self._spine.add(entry)
        _require_head(spine, "spine", self._spine.head)
        _require_count(spine, "spine", "entry_count", self._spine.count)

    def _check_subject(self) -> ReceiptSubject:
        version = str(self._facts.schema_version)
        audit = audit_binding(self._receipt.get("audit_range"), version)
        subject = self._subject(audit)
        digest = sha256(subject.binding_bytes()).hexdigest()
        stated = self._receipt.get("subject", {})
        stated = stated.get("digest", {}) if isinstance(stated, dict) else None
        if not isinstance(stated, dict):
            raise ReceiptMalformed("subject.digest is not an object")
        if stated.get("sha256") != digest:
            raise SignatureWrong(f"subject.digest.sha256 is not {digest}, that of the contents")
        return subject

    def _subject(self, audit: AuditBinding | None) -> ReceiptSubject:
        return ReceiptSubject(
            run_id=self._facts.run_id,
            hash_profile=self._profile,
            event_count=self._events.count,
            journal_head=self._events.head,
            spine_entry_count=self._spine.count,
            spine_head=self._spine.head,
            endpoints=tuple(sorted(self._events.endpoints)),
            extension_set_digest=self._events.extension_set_digest,
            audit=audit,
        )

    def _check_key(self, pin: PublicKey | bytes | None) -> PublicKey:
        signing = block(self._receipt, "signing")
        key = parse_jwk(block(signing, "public_key_jwk"))
        pinned = parse_public_pem(pin) if isinstance(pin, bytes) else pin
        if pinned is not None and pinned != key:
            raise SignatureWrong("the receipt is signed with another key than the pinned one")
        key_id = signing.get("key_id")
        self._facts = replace(
            self._facts, key=key, key_id=key_id if isinstance(key_id, str) else ""
        )
        return key

    def _check_signature(self, key: PublicKey, subject: ReceiptSubject) -> None:
        text = block(self._receipt, "signing").get("signature_b64")
        if not isinstance(text, str):
            raise ReceiptMalformed("signing.signature_b64 is missing: the receipt is unsigned")
        try:
            signature = decode_base64(text)
        except InvalidInput as error:
            raise ReceiptMalformed(f"signing.signature_b64 is {error.message}") from error
        if not key.verifies(signature, subject.preimage()):
            raise SignatureWrong("the signature does not hold for the receipt's contents")

    def _check_chain(self, chain: "ChainEvidence", key: PublicKey) -> None:
        from bernstein_formats.receipt_trust import ask_chain  # noqa: PLC0415 - most have no chain

        if self._demands.pin is None:
            raise ReceiptMalformed("a key chain says nothing without the pinned key of its root")
        stated = block(self._receipt, "signing")["public_key_jwk"]
        names = (self._facts.key_id, stated.get("kid") if isinstance(stated, dict) else None)
        answer = ask_chain(chain, self._demands.pin, key, names)
        warnings = (*self._facts.warnings, *answer.warnings)
        self._facts = replace(self._facts, chain=answer.facts, warnings=warnings)
        self._untrusted = answer.error

    def _check_cose(self, cose: bytes, key: PublicKey, subject: ReceiptSubject) -> None:
        try:
            envelope = parse_cose(cose)
        except ReceiptMalformed as error:
            raise SignatureWrong(error.message) from error
        of_another = envelope.payload != subject.binding_bytes()
        if of_another and self._demands.cose_may_be_of_another:
            self._facts = replace(self._facts, warnings=(_COSE_OF_ANOTHER,))
            return
        key_id = self._facts.key_id.encode(errors="replace")
        if envelope.content_type != PAYLOAD_TYPE or envelope.kid != key_id:
            raise SignatureWrong("the COSE file has another content type or kid than the receipt")
        if of_another:
            raise SignatureWrong("the COSE file is that of another receipt")
        preimage = receipt_cose_preimage(subject, self._facts.key_id)
        if not key.verifies(envelope.signature, preimage):
            raise SignatureWrong("the signature in the COSE file does not hold")
        self._facts = replace(self._facts, cose_verified=True)

    def _is_canonical(self) -> bool:
        states_default = self._receipt.get("hash_profile") == Profile.PY_JSON.value
        return self._document.canonical and not states_default

    def _failed(
        self, status: ReceiptStatus, text: str, divergent_step: int | None = None
    ) -> ReceiptVerdict:
        verdict = replace(
            self._facts,
            status=status,
            errors=(text,),
            findings=tuple(self._findings),
            divergent_step=divergent_step,
        )
        if status is ReceiptStatus.MALFORMED:
            return replace(verdict, journal_events=0, spine_entries=0)
        return verdict


def _require_head(members: Row, name: str, head: str) -> None:
    if members.get("head_hash") != head:
        raise ChainBroken(f"{name}.head_hash is not {head}, the head of what the receipt carries")


def _require_count(members: Row, name: str, member: str, count: int) -> None:
    stated = members.get(member)
    if type(stated) is not int or stated != count:
        raise ChainBroken(f"{name}.{member} is not {count}, the number that the receipt carries")


def _journal_step(error: BernsteinError) -> int | None:
    step = error.metadata.get("step")
    return int(step) if step is not None and error.metadata["substrate"] == "journal" else None


def _finding_text(findings: list[ReceiptFinding]) -> str:
    first = findings[0]
    place = "" if first.index is None else f" at {first.index}"
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"no signature covers {first.member!r}{place}: {first.reason}{more}"


def _clock_findings(row: Row, index: int) -> list[ReceiptFinding]:
    """The clock members of a row, which are no part of its hash; they are taken off."""
    clocks = [name for name in CLOCK_MEMBERS if name in row]
    for name in clocks:
        del row[name]
    return [ReceiptFinding(FindingReason.CLOCK_MEMBER, index, name) for name in clocks]
