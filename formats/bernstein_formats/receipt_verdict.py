"""What verifying a receipt says, and the exit code that goes with it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bernstein_formats.key_chain import Completeness, KeyVerdict
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_events import ReceiptFinding


class ReceiptStatus(StrEnum):
    OK = "ok"
    MALFORMED = "malformed"
    TAMPERED = "tampered"
    UNTRUSTED_KEY = "untrusted_key"


class ReceiptTier(StrEnum):
    """How much a good receipt says: that it is whole, or also who signed it."""

    INTEGRITY_ONLY = "integrity-only"
    PROVENANCE = "provenance"


EXIT_CODES: Final = {
    ReceiptStatus.OK: 0,
    ReceiptStatus.MALFORMED: 1,
    ReceiptStatus.TAMPERED: 2,
    ReceiptStatus.UNTRUSTED_KEY: 4,
}
EXIT_PROVENANCE_REQUIRED: Final = 3
EXIT_LAYOUT: Final = 1


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """What a key chain said: `problem` is a word for why it, or the key, is not trusted.

    `completeness` and the counts are there once the chain itself holds.
    """

    verdict: KeyVerdict | None = None
    problem: str | None = None
    completeness: Completeness | None = None
    entry_count: int | None = None
    head_hash: str | None = None


@dataclass(frozen=True, slots=True)
class ReceiptVerdict:
    """What verification found; `errors` has one text at most, and counts are 0 if malformed.

    `withheld_events` of the `journal_events` came without their payload.
    """

    status: ReceiptStatus
    tier: ReceiptTier | None = None
    run_id: str = ""
    journal_events: int = 0
    spine_entries: int = 0
    divergent_step: int | None = None
    errors: tuple[str, ...] = ()
    findings: tuple[ReceiptFinding, ...] = ()
    layout_findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    schema_version: str | None = None
    cose_verified: bool = False
    key_id: str = ""
    key: PublicKey | None = None
    withheld_events: int = 0
    chain: ChainFacts | None = None

    @property
    def ok(self) -> bool:
        return self.status is ReceiptStatus.OK

    def exit_code(self, *, require_provenance: bool = False, strict: bool = False) -> int:
        """The command's exit code (section 5.1); `strict` minds the layout too."""
        if not self.ok:
            return EXIT_CODES[self.status]
        if require_provenance and self.tier is not ReceiptTier.PROVENANCE:
            return EXIT_PROVENANCE_REQUIRED
        return EXIT_LAYOUT if strict and self.layout_findings else EXIT_CODES[self.status]
