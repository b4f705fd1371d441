"""What vouches for a run outside of its journal and of seal.json: ledger, spine, audit log.

The signer checks all three. What it cannot be asked about is a note, never a verdict.
"""

from collections.abc import Callable
from typing import Final

from bernstein_formats import paths
from bernstein_formats.audit_events import JOURNAL_SEAL, JournalSealEvent
from bernstein_formats.errors import BernsteinError
from bernstein_formats.journal_verdict import JournalVerification, Reason
from bernstein_formats.journal_verify import JournalSeal
from bernstein_formats.seal import EntryBody, Seal, parse_seal
from bernstein_formats.spine_verify import SpineStatus, verify_spine
from bernstein_formats.testimony import RememberedSeals, Testimony, newest_seal
from bernstein_journal.acknowledged_rows import AUDIT_TARGET, AcknowledgedRows
from bernstein_journal.audit_files import AuditFiles, Segment
from bernstein_journal.ledger_view import LedgerView
from bernstein_journal.signer import Signer
from bernstein_store.store import Store

_SEAL_TEXT: Final = JOURNAL_SEAL.encode()


class Witnesses:
    """Safe for any number of threads."""

    def __init__(
        self, store: Store, origin: str, ledger: LedgerView, signer: Callable[[], Signer]
    ) -> None:
        self._store = store
        self._origin = origin
        self._ledger = ledger
        self._signer = signer
        self._audit = AuditFiles(store)
        self._rows = AcknowledgedRows(store)

    def question(self, run_id: str, journal: JournalVerification, seal: Seal | None) -> Testimony:
        """Ask all of them about a verified journal; `seal` is what was found beside it."""
        said = Testimony(journal)
        asks = (self._ask_rows, self._ask_ledger, self._ask_spine, self._ask_audit_log)
        for ask in asks:
            try:
                ask(run_id, seal, said)
            except BernsteinError as error:
                said.notes.append(f"a witness could not be asked: {error.message}")
        return said

    def sealed(self, run_id: str) -> JournalSeal | None:
        """What the ledger knows a run to be sealed with. Raises what asking the signer raises."""
        if not self._ledger.is_there():
            return None
        answer = self._signer().find_seal(self._origin, run_id)
        if not answer or self._store.get(paths.interim_seal_path(run_id)) == answer:
            return None  # a run sealed for a receipt meanwhile goes on
        return parse_seal(answer).entry.body.journal_seal

    def _ask_rows(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        said.miss_rows("journal", self._rows.missing(paths.journal_path(run_id)))
        said.miss_rows("spine", self._rows.missing(paths.spine_path(run_id)))
        said.miss_rows(AUDIT_TARGET, self._rows.missing_events())
        said.note_losses(run_id, self._store.get(paths.LOSSES))

    def _ask_ledger(self, run_id: str, seal: Seal | None, said: Testimony) -> None:
        newest = newest_seal(self._store.get(paths.CHECKPOINT), self._origin)
        if not self._ledger.is_there():
            if newest is not None:
                said.miss_ledger(self._ledger.place)
            self._remembered(run_id, seal, newest).tell(said)
            return
        origin = seal.entry.body.origin if seal else self._origin
        answer = self._signer().find_seal(origin, run_id)
        if not answer:
            if seal is not None:
                said.notes.append("the signer's ledger does not know the run's seal")
            if newest is not None and not self._is_in_ledger(newest):
                said.miss_ledger(self._ledger.place)
            self._remembered(run_id, seal, newest).tell(said)
            return
        known = parse_seal(answer)
        if seal is None:
            self._without_file(run_id, known, answer, said)
        elif seal.entry.body.index < known.entry.body.index:
            said.find(Reason.SEAL_OUTDATED)
            _compare_with_ledger(known.entry.body, said)

    def _is_in_ledger(self, seal: Seal) -> bool:
        body = seal.entry.body
        answer = self._signer().find_seal(body.origin, body.run_id)
        return bool(answer) and parse_seal(answer).entry.body.index >= body.index

    def _remembered(self, run_id: str, seal: Seal | None, newest: Seal | None) -> RememberedSeals:
        return RememberedSeals(
            run_id=run_id,
            seal=seal,
            has_seal_file=self._store.size(paths.seal_path(run_id)) is not None,
            newest=newest,
            interim=self._store.get(paths.interim_seal_path(run_id)),
        )

    def _without_file(self, run_id: str, known: Seal, answer: bytes, said: Testimony) -> None:
        """The ledger knows a seal and there is no seal.json."""
        body = known.entry.body
        if self._store.get(paths.seal_path(run_id)) is not None:
            return  # it is there and worth nothing, which was said before
        is_interim = self._store.get(paths.interim_seal_path(run_id)) == answer
        if not is_interim:
            said.find(Reason.SEAL_MISSING)
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
