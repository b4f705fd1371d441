"""What a verification of a journal answers: the peer's verdict member by member, and findings."""

from dataclasses import dataclass
from enum import StrEnum

from bernstein_formats.canonical import Profile
from bernstein_formats.event_journal import ENVELOPE_NAMES

UNAUTHENTICATED_FIELDS = tuple(sorted(ENVELOPE_NAMES))
# More discarded lines or findings than this are counted, not listed.
MAX_LISTED = 1000
# A note on a run that bears the mark of `paths.incomplete_path` and no seal.
INCOMPLETE_NOTE = (
    "incomplete: the run was begun here and is not finished; it goes on, or rows may be missing"
    " behind its last one"
)


class Identity(StrEnum):
    """Whether the journal is the one that was sealed."""

    VERIFIED = "verified"
    MISMATCHED = "mismatched"
    UNVERIFIABLE = "unverifiable"


class Reason(StrEnum):
    """What a finding is about."""

    INDEX_WRONG = "index_wrong"
    PAYLOAD_HASH_WRONG = "payload_hash_wrong"
    EVENT_NOT_TEXT = "event_not_text"
    PREV_HASH_MISSING = "prev_hash_missing"
    DUPLICATE_MEMBER = "duplicate_member"
    FINAL_NEWLINE_MISSING = "final_newline_missing"
    # The signer's ledger knows a seal that is not beside the run, or a newer one.
    SEAL_MISSING = "seal_missing"
    SEAL_OUTDATED = "seal_outdated"
    # There was a ledger, and it is gone.
    LEDGER_MISSING = "ledger_missing"
    # Rows that were acknowledged are gone: of `journal`, `spine` or `audit log`.
    ROWS_MISSING = "rows_missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong that does not break the chain; on a row (by position), where one is meant."""

    reason: Reason
    index: int | None
    member: str | None


@dataclass(frozen=True, slots=True)
class JournalSeal:
    """What was committed to outside the journal."""

    head: str
    event_count: int


@dataclass(frozen=True, slots=True)
class JournalVerification:
    """The peer's verdict, member by member, and ours.

    `head` is that of the good part when the chain is broken. `divergent_index` counts rows from 0,
    `divergent_line` physical lines from 1. Lists end after MAX_LISTED entries; the counts do not.
    """

    chain_consistent: bool
    coverage: str
    identity: Identity
    count: int
    divergent_index: int | None
    expected_hash: str | None
    actual_hash: str | None
    head: str
    discarded_line_indices: tuple[int, ...]
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]
    discarded_count: int
    findings_count: int
    divergent_line: int | None
    profile: Profile | None
    unauthenticated_fields: tuple[str, ...] = UNAUTHENTICATED_FIELDS

    @property
    def intact(self) -> bool:
        """Whether nothing at all is wrong with the file (a missing seal is not wrong)."""
        complete = self.chain_consistent and not self.discarded_count and not self.findings_count
        return complete and self.identity is not Identity.MISMATCHED
