"""Verifying a stored run: the file's own facts, its seal, the provider's state, the report."""

from collections.abc import Callable
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.divergence_report import divergence_report
from bernstein_formats.errors import (
    BernsteinError,
    JournalError,
    Unavailable,
)
from bernstein_formats.found_seal import FoundSeal, found_seal
from bernstein_formats.journal_reader import counted
from bernstein_formats.journal_verdict import INCOMPLETE_NOTE
from bernstein_formats.journal_verify import (
    Identity,
    JournalSeal,
    JournalVerification,
    verify_journal,
)
from bernstein_formats.provider_state import ProviderState
from bernstein_formats.public_key import PublicKey
from bernstein_journal.ledger_view import LedgerView
from bernstein_journal.sealing import is_incomplete
from bernstein_journal.witnesses import Witnesses
from bernstein_store.store import Store


@dataclass(frozen=True, slots=True)
class RunVerification:
    """Everything that `replay RUN --verify` says."""

    run_id: str
    journal: JournalVerification
    flagged_steps: tuple[int, ...]
    provider_errors: tuple[str, ...]
    notes: tuple[str, ...]
    report_path: str
    sealed_row_count: int
    pinned_key: bool | None


class Verifier:
    """Verifies where the files are; safe for any number of threads."""

    def __init__(self, store: Store, ledger: LedgerView, witnesses: Witnesses) -> None:
        self._store = store
        self._ledger = ledger
        self._witnesses = witnesses

    def verify(
        self, run_id: str, asked_for: str, progress: Callable[[int, int], None]
    ) -> RunVerification:
        """Verify; `asked_for` is the id as it was typed, which the report repeats."""
        name = paths.journal_path(run_id)
        size = self._store.size(name) or 0
        provider = ProviderState()
        found = self._seal(run_id)
        journal = verify_journal(
            counted(self._store.read(name, 0, size), lambda done: progress(done, size)),
            found.journal_seal,
            watch=provider.feed,
        )
        said = self._witnesses.question(run_id, found.concluded(journal), found.seal)
        journal = said.concluded()
        return RunVerification(
            run_id=run_id,
            journal=journal,
            flagged_steps=tuple(provider.flagged_indices),
            provider_errors=tuple(provider.errors),
            notes=(*self._incomplete(run_id), *said.notes),
            report_path=self._report(run_id, asked_for, journal),
            sealed_row_count=found.row_count,
            pinned_key=found.pinned_key,
        )

    def sealed(self, run_id: str) -> JournalSeal | None:
        """What a run is sealed with, by its seal.json or else by the signer's ledger.

        Raises JournalError for a seal that cannot be trusted, and what asking the signer raises.
        """
        found = self._seal(run_id)
        if found.errors:
            raise JournalError(f"run {run_id}: {'; '.join(found.errors)}", run_id=run_id)
        return found.journal_seal or self._witnesses.sealed(run_id)

    def is_as_sealed(self, run_id: str) -> bool:
        """Whether the journal is whole and the one that seal.json commits to; asks no witness."""
        sealed = self._seal(run_id).journal_seal
        if sealed is None:
            return False
        found = verify_journal(self._store.read(paths.journal_path(run_id)), sealed)
        return found.identity is Identity.VERIFIED and not found.discarded_count

    def _seal(self, run_id: str) -> FoundSeal:
        data = self._store.get(paths.seal_path(run_id))
        return found_seal(data, run_id, self._seal_key)

    def _seal_key(self) -> PublicKey | None:
        try:
            return self._ledger.seal_key()
        except Unavailable:
            return None  # the seal is then checked with the key that it carries, which is said

    def _incomplete(self, run_id: str) -> tuple[str, ...]:
        return (INCOMPLETE_NOTE,) if is_incomplete(self._store, run_id) else ()

    def _report(self, run_id: str, asked_for: str, journal: JournalVerification) -> str:
        """Write the peer's divergence report when chain or coverage fails; a good run has none."""
        name = paths.divergence_report_path(run_id)
        if journal.chain_consistent and not journal.discarded_count:
            return ""
        try:
            report = divergence_report(
                asked_for, journal.divergent_index, journal.expected_hash, journal.actual_hash
            )
            self._store.put(name, report)
        except BernsteinError:
            return ""  # a verdict does not depend on where it can be written; no path says so
        return self._store.where(name)
