"""Verifying a stored run: the file's own facts, its seal, the provider's state, the report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bernstein_formats import paths
from bernstein_formats.divergence_report import divergence_report
from bernstein_formats.errors import (
    BernsteinError,
    JournalError,
    KeyUnusable,
    SealMalformed,
    SignatureWrong,
)
from bernstein_formats.journal_verdict import INCOMPLETE_NOTE
from bernstein_formats.journal_verify import (
    Identity,
    JournalSeal,
    JournalVerification,
    verify_journal,
)
from bernstein_formats.provider_state import ProviderState
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_formats.seal import Seal, check_seal, parse_seal
from bernstein_journal.sealing import is_incomplete
from bernstein_journal.witnesses import Witnesses
from bernstein_runtime.regular_file import read_regular
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


class Verifier:
    """Verifies where the files are; safe for any number of threads."""

    def __init__(
        self, store: Store, sdd_dir: Path, seal_key_file: Path, witnesses: Witnesses
    ) -> None:
        self._store = store
        self._sdd_dir = sdd_dir
        self._seal_key_file = seal_key_file
        self._witnesses = witnesses

    def verify(
        self, run_id: str, asked_for: str, progress: Callable[[int, int], None]
    ) -> RunVerification:
        """Verify; `asked_for` is the id as it was typed, which the report repeats."""
        name = paths.journal_path(run_id)
        size = self._store.size(name) or 0
        provider = ProviderState()
        seal, seal_errors, notes = self._seal(run_id)
        journal = verify_journal(
            counted(self._store.read(name, 0, size), size, progress),
            JournalSeal(seal.entry.body.head_hash, seal.entry.body.event_count) if seal else None,
            watch=provider.feed,
        )
        if seal_errors:
            journal = with_bad_seal(journal, seal_errors)
        said = self._witnesses.question(run_id, journal, seal)
        journal = said.concluded()
        return RunVerification(
            run_id=run_id,
            journal=journal,
            flagged_steps=tuple(provider.flagged_indices),
            provider_errors=tuple(provider.errors),
            notes=(*notes, *self._incomplete(run_id), *said.notes),
            report_path=self._report(run_id, asked_for, journal),
            sealed_row_count=seal.entry.body.event_count if seal else 0,
        )

    def sealed(self, run_id: str) -> JournalSeal | None:
        """What a run is sealed with, by its seal.json or else by the signer's ledger.

        Raises JournalError for a seal that cannot be trusted, and what asking the signer raises.
        """
        seal, errors, _ = self._seal(run_id)
        if errors:
            raise JournalError(f"run {run_id}: {'; '.join(errors)}", run_id=run_id)
        if seal is None:
            return self._witnesses.sealed(run_id)
        return JournalSeal(seal.entry.body.head_hash, seal.entry.body.event_count)

    def is_as_sealed(self, run_id: str) -> bool:
        """Whether the journal is whole and the one that seal.json commits to; asks no witness."""
        seal, errors, _ = self._seal(run_id)
        if seal is None or errors:
            return False
        body = seal.entry.body
        found = verify_journal(
            self._store.read(paths.journal_path(run_id)),
            JournalSeal(body.head_hash, body.event_count),
        )
        return found.identity is Identity.VERIFIED and not found.discarded_count

    def _seal(self, run_id: str) -> tuple[Seal | None, tuple[str, ...], tuple[str, ...]]:
        """The run's seal, what is wrong with it, and what to know about its key."""
        data = self._store.get(paths.seal_path(run_id))
        if data is None:
            return None, (), ()
        try:
            seal = parse_seal(data)
            pinned = self._pinned_key()
            check_seal(seal, pinned)
        except (SealMalformed, SignatureWrong, KeyUnusable) as error:
            return None, (error.message,), ()
        if seal.entry.body.run_id != run_id:
            return None, (f"the seal is one of run {seal.entry.body.run_id}",), ()
        if pinned is None:
            return seal, (), ("the seal was checked with the key it carries; none is pinned here",)
        return seal, (), ()

    def _incomplete(self, run_id: str) -> tuple[str, ...]:
        return (INCOMPLETE_NOTE,) if is_incomplete(self._store, run_id) else ()

    def _pinned_key(self) -> PublicKey | None:
        try:
            return parse_public_pem(read_regular(self._seal_key_file))
        except FileNotFoundError:
            return None

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
        return str(self._sdd_dir / name)


def with_bad_seal(journal: JournalVerification, errors: tuple[str, ...]) -> JournalVerification:
    """A seal that cannot be trusted does not verify anything, and is not the same as none."""
    return replace(journal, identity=Identity.MISMATCHED, errors=(*journal.errors, *errors))


def counted(
    chunks: Iterator[bytes], total: int, progress: Callable[[int, int], None]
) -> Iterator[bytes]:
    """The same chunks, told about as they pass."""
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        progress(done, total)
