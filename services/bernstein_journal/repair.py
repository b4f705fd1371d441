"""Repairing a run's journal: what is taken out is kept beside it, first and durably."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.errors import JournalError
from bernstein_formats.journal_repair import (
    Repair,
    plan_recovery,
    plan_tail_repair,
    recovered_lines,
)
from bernstein_formats.journal_verify import (
    JournalSeal,
    JournalVerification,
    verify_journal,
)
from bernstein_journal.run_log import Appended
from bernstein_store.store import Store

Parts = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done; `kept` names the file with what was taken out, if anything was."""

    repair: Repair
    kept: str = ""


class Repairer:
    """Works on a run whose file nobody has open."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def repair(self, run_id: str, seal: JournalSeal | None, *, recover: bool) -> Repaired:
        """Put the journal in order.

        Raises JournalError where a row would be lost by it, or where something is wrong that no
        repair mends.
        """
        name = paths.journal_path(run_id)
        acknowledged = self._acknowledged(name)

        def read() -> Iterator[bytes]:
            return self._store.read(name)

        plan = plan_recovery(read, seal) if recover else plan_tail_repair(read, seal)
        if plan.event_count < acknowledged:
            raise JournalError(
                f"{acknowledged} rows were acknowledged and {plan.event_count} would be left;"
                " restore the file from a copy",
                run_id=run_id,
            )
        if not plan.repaired:
            _require_sound(run_id, verify_journal(read(), seal))
            return Repaired(plan)
        return Repaired(plan, self._carry_out(name, plan))

    def _acknowledged(self, name: str) -> int:
        """Rows that callers were told are stored, as far as that is remembered."""
        marks = self._store.marks_of(name)
        return max((Appended.from_text(mark.answer).row_count for mark in marks), default=0)

    def _carry_out(self, name: str, plan: Repair) -> str:
        """Keep what goes, then write what stays; gives the name of what was kept."""
        if plan.adds_newline:
            self._store.rewrite_log(name, lambda: self._with_newline(name))
            return ""
        cut = plan.keep_bytes
        if cut is None:
            kept = self._keep(name, "repaired", 0)
            self._store.rewrite_log(name, lambda: recovered_lines(lambda: self._store.read(kept)))
        else:
            kept = self._keep(name, "torn", cut)
            self._store.rewrite_log(name, lambda: self._store.read(name, 0, cut))
        return kept

    def _with_newline(self, name: str) -> Iterator[bytes]:
        yield from self._store.read(name)
        yield b"\n"

    def _keep(self, name: str, word: str, start: int) -> str:
        number = 1
        while self._store.size(kept := f"{name}.{word}-{number}") is not None:
            number += 1
        self._store.put_parts(kept, self._store.read(name, start))
        return kept


def _require_sound(run_id: str, found: JournalVerification) -> None:
    """What no line shows to be damaged may be wrong all the same, and no repair mends that."""
    if found.intact:
        return
    wrong = (*found.errors, *dict.fromkeys(str(each.reason) for each in found.findings))
    raise JournalError(
        f"no line is damaged, and the journal is not what was written: {'; '.join(wrong)};"
        f" see `bernstein replay {run_id} --verify` and restore the file from a copy",
        run_id=run_id,
    )
