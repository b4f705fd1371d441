"""What vouches for a run outside of its journal and of seal.json, and what of that is gone.

Whoever can reach more asks more: files alone offline, the signer with its ledger and keys online.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from bernstein_formats import paths
from bernstein_formats.accepted_loss import losses_of
from bernstein_formats.journal_verdict import Finding, Identity, JournalVerification, Reason
from bernstein_formats.seal import EntryBody, EntryKind, Seal, parse_seal

_LEDGER_GONE: Final = (
    "runs were sealed here and their ledger {} is not there, or an older copy is: whether seals are"
    " missing is unknown; restore the signer's folder, or begin a new ledger with"
    " `bernstein services init --new-ledger`"
)


@dataclass(slots=True)
class Testimony:
    """What the witnesses say of a verified journal."""

    journal: JournalVerification
    agrees: bool = False
    errors: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, reason: Reason, member: str | None = None) -> None:
        """Add a finding, once."""
        finding = Finding(reason, None, member)
        if finding not in self.findings:
            self.findings.append(finding)

    def miss_rows(self, member: str, what: str) -> None:
        """Rows are gone from what `member` names, unless `what` is empty."""
        if what:
            self.find(Reason.ROWS_MISSING, member)
            self.notes.append(what if what.startswith(member) else f"{member}: {what}")

    def note_losses(self, run_id: str, record: bytes | None) -> None:
        """Repeat what was accepted as lost of the run or of the audit log."""
        names = (paths.journal_path(run_id), paths.spine_path(run_id))
        self.notes.extend(loss.note for loss in losses_of(record or b"", names))

    def miss_ledger(self, ledger: str) -> None:
        """There was a ledger, and it is not there, or not all of it."""
        self.find(Reason.LEDGER_MISSING)
        self.notes.append(_LEDGER_GONE.format(ledger))

    def compare(self, what: str, head: str, count: int | None, *, vouches: bool = True) -> None:
        """Hold a commitment against the journal; `count` is None where none was made.

        One that nobody `vouches` for can contradict; its agreement proves nothing.
        """
        journal = self.journal
        if count not in {None, journal.count}:
            self.errors.append(f"{what} commits to {count} rows, the journal holds {journal.count}")
        elif head != journal.head:
            self.errors.append(
                f"{what} commits to the journal head {head or '(empty)'}, "
                f"the journal ends at {journal.head or '(empty)'}"
            )
        else:
            self.agrees = self.agrees or vouches

    def concluded(self) -> JournalVerification:
        """The journal's verification with all of this in it."""
        journal = self.journal
        identity = journal.identity
        if self.errors:
            identity = Identity.MISMATCHED
        elif self.agrees and identity is Identity.UNVERIFIABLE:
            identity = Identity.VERIFIED
        return replace(
            journal,
            identity=identity,
            errors=(*journal.errors, *self.errors),
            findings=(*self.findings, *journal.findings),
            findings_count=journal.findings_count + len(self.findings),
        )


def newest_seal(checkpoint: bytes | None, origin: str) -> Seal | None:
    """The newest seal that the journal saw of this project's ledger. Raises SealMalformed.

    One of another host or folder came along with a copy: its ledger stayed behind.
    """
    seal = parse_seal(checkpoint) if checkpoint else None
    return seal if seal is not None and seal.entry.body.origin == origin else None


@dataclass(frozen=True, slots=True)
class RememberedSeals:
    """What the journal's state folder remembers of a run's seals, and what stands beside it."""

    run_id: str
    # None: there is no seal.json, or one that is worth nothing.
    seal: Seal | None
    has_seal_file: bool
    newest: Seal | None
    # Content of `paths.interim_seal_path`.
    interim: bytes | None

    def tell(self, said: Testimony) -> None:
        """Miss a seal that was there, or a newer one."""
        if self.interim == b"" and not self.has_seal_file:
            said.find(Reason.SEAL_MISSING)
        body = self._newest_of_run()
        if body is None:
            return
        if self.seal is None:
            if self.has_seal_file:
                return  # what is wrong with it was said before
            said.find(Reason.SEAL_MISSING)
        elif self.seal.entry.body.index < body.index:
            said.find(Reason.SEAL_OUTDATED)
        else:
            return
        # Its signature was not checked: it may contradict.
        what = "the newest seal seen here"
        said.compare(what, body.head_hash, body.event_count, vouches=False)

    def _newest_of_run(self) -> EntryBody | None:
        """What the newest seal says if it is one of this run, and not of an unfinished one."""
        newest = self.newest
        if newest is None or newest.file_bytes() == self.interim:
            return None
        body = newest.entry.body
        return body if body.run_id == self.run_id and body.kind is EntryKind.SEAL else None
