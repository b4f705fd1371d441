"""Judges what a provider did to an agent's context behind the run's back, from the journal's rows.

Rules: docs/formats/llm-record-replay.md, section 5. The chain is not checked here: give `feed` to
`verify_journal` as its watch.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput

MUTATION = "provider_state_mutation"
_CAPTURE_FAILED = "provider_state_capture_failed"
# More flagged steps or errors than this are counted, not listed.
MAX_LISTED = 1000


@dataclass(slots=True)
class ProviderState:
    """What the rows so far say; lists end after MAX_LISTED entries, counts do not."""

    mutation_count: int = 0
    flagged_count: int = 0
    error_count: int = 0
    flagged_indices: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no row speaks against a replay."""
        return not self.error_count

    def feed(self, index: int, row: dict[str, JsonValue]) -> None:
        """Take the row at a position; rows about other things are passed over."""
        event = row.get("event")
        if event == MUTATION:
            self._mutation(index, row)
        elif event == _CAPTURE_FAILED:
            why = row.get("reason", "")
            self._fail(
                index, f"provider-state capture failed ({why}); replay unverifiable (fail-closed)"
            )

    def _mutation(self, index: int, row: dict[str, JsonValue]) -> None:
        self.mutation_count += 1
        step_index = whole_number(row.get("step_index", 0))
        if step_index is None:
            self._fail(index, f"{MUTATION} has malformed step_index {row.get('step_index')!r}")
            return
        kind = str(row.get("mutation_kind", ""))
        if row.get("content_address") != _address_in(kind, row, step_index):
            self._fail(index, f"{MUTATION} content address mismatch")
        if row.get("flagged"):
            self.flagged_count += 1
            if self.flagged_count <= MAX_LISTED:
                self.flagged_indices.append(index)
            self._fail(
                index, f"flagged provider-side mutation ({kind}) arrived in deterministic mode"
            )

    def _fail(self, index: int, what: str) -> None:
        self.error_count += 1
        if self.error_count <= MAX_LISTED:
            self.errors.append(f"step {index}: {what}")


def whole_number(value: JsonValue) -> int | None:
    """Read what Python's int() reads; the peer's writers have left it as text or float."""
    if isinstance(value, str | int | float):
        try:
            return int(value)
        except (ValueError, OverflowError):
            return None
    return None


def content_address(kind: str, before_digest: str, after_digest: str, step_index: int) -> str:
    """Hash what a mutation row commits to; InvalidInput when it has no hash."""
    committed: dict[str, JsonValue] = {
        "kind": kind,
        "before_digest": before_digest,
        "after_digest": after_digest,
        "step_index": step_index,
    }
    return sha256(canonical_bytes(committed, Profile.PY_JSON)).hexdigest()


def _address_in(kind: str, row: dict[str, JsonValue], step_index: int) -> str | None:
    digests = str(row.get("before_digest", "")), str(row.get("after_digest", ""))
    try:
        return content_address(kind, *digests, step_index)
    except InvalidInput:
        return None
