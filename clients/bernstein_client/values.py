"""What the services answer, as plain values: no wire, so that offline readers can give them too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import InvalidInput

Progress = Callable[[int, int], None]


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """For callers who do not show any."""


class LogKind(Enum):
    """A log that rows can be missing from."""

    AUDIT = auto()
    SPINE = auto()
    JOURNAL = auto()
    STEPS = auto()


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known of a run without verifying it."""

    run_id: str
    row_count: int
    size_bytes: int
    metadata: Mapping[str, JsonValue] | None
    replay: Mapping[str, JsonValue] | None
    seal_json: bytes
    journal_path: str
    damage: str


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A sealed run; `notes` say what keeps the seal out of its spine, if anything does."""

    head_hash_hex: str
    row_count: int
    seal_json: bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong that leaves the chain consistent."""

    reason: str
    index: int | None
    member: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The three facts of a verification, kept apart, and what was found besides."""

    run_id: str
    chain_consistent: bool
    coverage: str
    identity: str
    row_count: int
    divergent_index: int | None
    divergent_line: int | None
    expected_hash: str
    actual_hash: str
    head_hash: str
    discarded_lines: tuple[int, ...]
    discarded_count: int
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]
    flagged_steps: tuple[int, ...]
    provider_errors: tuple[str, ...]
    notes: tuple[str, ...]
    report_path: str
    sealed_row_count: int
    # Whether the key of its seal.json is the one known here; None without a seal to go by.
    pinned_key: bool | None = None

    @property
    def has_diverged(self) -> bool:
        """Whether the chain is broken or a line is no row at all."""
        return not self.chain_consistent or self.discarded_count > 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all speaks against the run (a missing seal does not)."""
        bad = self.has_diverged or self.provider_errors or self.findings
        return not bad and self.identity != "mismatched"


@dataclass(frozen=True, slots=True)
class RunDifference:
    """Where two runs part."""

    diverged: bool
    index: int | None
    reason: str
    reason_code: str
    mutation_kind: str
    a_event: JsonValue
    b_event: JsonValue
    note: str


@dataclass(frozen=True, slots=True)
class OnceSigner:
    """A signer process started for one receipt: where it listens and how to be let in."""

    socket: Path
    token: bytes


@dataclass(frozen=True, slots=True)
class AuditRangeWanted:
    """The window of the audit log that a receipt takes: instants, the second one left out."""

    since: str
    until: str
    # Leave out what does not name the run.
    own_only: bool = False


@dataclass(frozen=True, slots=True)
class BuiltAuditRange:
    """What a receipt took from the audit log."""

    event_count: int
    # Those among them that do not name the run.
    foreign_event_count: int
    head_hmac: str


@dataclass(frozen=True, slots=True)
class KnownReceipt:
    """What the signer knows of a receipt: its ledger has it, and a seal of the run; the key that
    signs receipts now, empty where there is none."""

    is_known: bool
    is_sealed: bool
    public_key_pem: bytes


@dataclass(frozen=True, slots=True)
class BuiltReceipt:
    """What a receipt binds and where it is."""

    run_id: str
    journal_head: str
    row_count: int
    spine_head: str
    spine_entry_count: int
    receipt_sha256_hex: str
    key_id: str
    receipt_path: str
    cose: bytes
    size_bytes: int
    audit: BuiltAuditRange | None = None


@dataclass(frozen=True, slots=True)
class Rederived:
    """Whether the scheduler's rules give the recorded head."""

    ok: bool
    run_id: str
    recorded_head: str
    derived_head: str
    step_count: int
    step_index: int | None
    reason: str
    reason_code: str
    rule: str
    notes: tuple[str, ...]
    # Rows that the rules refuse: known gaps of the peer's recording by their own names, else rules.
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairedRun:
    """What a repair did; `kept_path` is the file with what was taken out, if anything was."""

    run_id: str
    journal_path: str
    repaired: bool
    removed_lines: tuple[int, ...]
    row_count: int
    head_hash: str
    recovered_count: int
    added_newline: bool
    kept_path: str


@dataclass(frozen=True, slots=True)
class PrunedRuns:
    """Runs that went, or would go, oldest first; old ones that stay with the reason; the rest."""

    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    left_count: int


@dataclass(frozen=True, slots=True)
class ChangedThing:
    """A run or session that a caller changed, when first and last (to the hour), and by which calls
    that began an hour. An empty id: the audit log."""

    kind: str
    id: str
    first_at: int
    last_at: int
    methods: tuple[str, ...]
    is_own: bool


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What a caller changed, and whether its calls are refused now."""

    changed: tuple[ChangedThing, ...]
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class WatchedRows:
    """Rows of a run that follow each other, as stored, without their line ends."""

    first_index: int
    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """Everything before `next_index` was given; a sealed run gets no further row."""

    run_id: str
    next_index: int
    is_sealed: bool


Watched: TypeAlias = WatchedRows | WatchPlace


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a run: where it stands, and its bytes as they are stored."""

    index: int
    line: bytes

    def members(self) -> Mapping[str, JsonValue]:
        """Raises InvalidInput for a row that is no object."""
        value = parse_json(self.line)
        if not isinstance(value, dict):
            raise InvalidInput(f"row {self.index} is no JSON object", index=self.index)
        return value
