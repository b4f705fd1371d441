"""What vouches for a run outside of its journal and of seal.json: ledger, spine, audit log.

The signer checks all three. What it cannot be asked about is a note, never a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bernstein_formats import paths
from bernstein_formats.audit_events import JOURNAL_SEAL, JournalSealEvent
from bernstein_formats.errors import BernsteinError
from bernstein_formats.journal_verdict import Finding, Identity, JournalVerification, Reason
from bernstein_formats.journal_verify import JournalSeal
from bernstein_formats.seal import EntryBody, Seal, parse_seal
from bernstein_formats.spine_verify import SpineStatus, verify_spine
from bernstein_journal.audit_files import AuditFiles, Segment
from bernstein_journal.sealing import CHECKPOINT, interim_seal_path
from bernstein_journal.signer import Signer
from bernstein_store.store import Store

_LEDGER_GONE: Final = (
    "runs were sealed here and their ledger {} is not there: whether this run had a seal is unknown"
)
_SEAL_TEXT: Final = JOURNAL_SEAL.encode()


@dataclass(slots=True)
class Testimony:
    """What the witnesses say of a verified journal."""

    journal: JournalVerification
    agrees: bool = False
    errors: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def compare(self, what: str, head: str, count: int | None) -> None:
        """Hold a commitment against the journal; `count` is None where none was made."""
        journal = self.journal
        if count not in {None, journal.count}:
            self.errors.append(f"{what} commits to {count} rows, the journal holds {journal.count}")
        elif head != journal.head:
            self.errors.append(
                f"{what} commits to the journal head {head or '(empty)'}, "
                f"the journal ends at {journal.head or '(empty)'}"
            )
        else:
            self.agrees = True

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


class Witnesses:
    """Safe for any number of threads."""

    def __init__(
        self, store: Store, origin: str, ledger_file: Path, signer: Callable[[], Signer]
    ) -> None:
        """`ledger_file` is only looked for: without it no signer is started to ask for a seal."""
        self._store = store
        self._origin = origin
        self._ledger_file = ledger_file
        self._signer = signer
        self._audit = AuditFiles(store)

    def question(self, run_id: str, journal: JournalVerification, seal: Seal | None) -> Testimony:
        """Ask all of them about a verified journal; `seal` is what was found beside it."""
        said = Testimony(journal)
        for ask in (self._ask_ledger, self._ask_spine, self._ask_audit_log):
            try:
                ask(run_id, seal, said)
            except BernsteinError as error:
                said.notes.append(f"a seal could not be looked for: {error.message}")
        return said

    def sealed(self, run_id: str) -> JournalSeal | None:
        """What the ledger knows a run to be sealed with. Raises what asking the signer raises."""
        if not self._ledger_file.exists():
            return None
        answer = self._signer().find_seal(self._origin, run_id)
        if not answer or self._store.get(interim_seal_path(run_id)) == answer:
            return None  # a run sealed for a receipt meanwhile goes on
        return parse_seal(answer).entry.body.journal_seal

    def _ask_ledger(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        if not self._ledger_file.exists():
            if seal is None and self._store.get(CHECKPOINT):
                said.notes.append(_LEDGER_GONE.format(self._ledger_file))
            return
        origin = seal.entry.body.origin if seal else self._origin
        answer = self._signer().find_seal(origin, run_id)
        if not answer:
            if seal is not None:
                said.notes.append("the signer's ledger does not know the run's seal")
            return
        known = parse_seal(answer)
        if seal is None:
            self._without_file(run_id, known, answer, said)
        elif seal.entry.body.index < known.entry.body.index:
            said.findings.append(Finding(Reason.SEAL_OUTDATED, None, None))
            _compare_with_ledger(known.entry.body, said)

    def _without_file(self, run_id: str, known: Seal, answer: bytes, said: Testimony) -> None:
        """The ledger knows a seal and there is no seal.json."""
        body = known.entry.body
        if self._store.get(paths.seal_path(run_id)) is not None:
            return  # it is there and worth nothing, which was said before
        is_interim = self._store.get(interim_seal_path(run_id)) == answer
        if not is_interim:
            said.findings.append(Finding(Reason.SEAL_MISSING, None, None))
        elif body.event_count < said.journal.count:
            said.notes.append(f"{body.event_count} rows were sealed for a receipt meanwhile")
            return
        _compare_with_ledger(body, said)

    def _ask_spine(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        name = paths.spine_path(run_id)
        size = self._store.size(name)
        if not size or verify_spine(self._store.read(name, 0, size), None).sealed_head is None:
            return
        found = self._signer().verify_spine(lambda: self._store.read(name, 0, size))
        if found.status == SpineStatus.TAMPERED:
            said.notes.append(
                f"the spine's MACs do not hold under this project's key, so its seal proves "
                f"nothing: it was imported, or changed ({found.errors[0]})"
            )
        elif found.sealed_head is not None:
            said.compare("the seal in the spine", found.sealed_head, None)

    def _ask_audit_log(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        segments = self._audit.segments()
        if not any(self._mentions_seal(segment, run_id) for segment in segments):
            return
        found = self._signer().verify_audit_log(
            lambda: ((each.name, self._audit.read(each)) for each in segments), run_id
        )
        if found.error:
            said.notes.append(f"not all seals in the audit log could be used: {found.error}")
        _compare_capsules(found.seals, said)

    def _mentions_seal(self, segment: Segment, run_id: str) -> bool:
        """Whether it can hold a seal of the run; cheap, so that the key is seldom needed."""
        rest, name = b"", run_id.encode()
        has_seal = has_run = False
        for chunk in self._audit.read(segment):
            text = rest + chunk
            has_seal = has_seal or _SEAL_TEXT in text
            has_run = has_run or name in text
            if has_seal and has_run:
                return True
            rest = text[-256:]
        return False


def _compare_with_ledger(body: EntryBody, said: Testimony) -> None:
    said.compare("the seal in the signer's ledger", body.head_hash, body.event_count)


def _compare_capsules(seals: tuple[JournalSealEvent, ...], said: Testimony) -> None:
    stated = {(seal.journal_head, seal.event_count) for seal in seals}
    if len(stated) > 1:
        said.errors.append(f"{len(stated)} seals of the run in the audit log contradict each other")
        return
    for head, count in stated:
        if count is None:
            said.errors.append("the seal in the audit log states a row count that is no integer")
        else:
            said.compare("the seal in the audit log", head, count)
