"""What the services answer, as plain values: no wire, so that offline readers can give them too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bernstein_formats.canonical import JsonValue

Progress = Callable[[int, int], None]


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """For callers who do not show any."""


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
    """A sealed run."""

    head_hash_hex: str
    row_count: int
    seal_json: bytes


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
