"""`diff_reports` and `check_runs`: where do two runs of turns part, and which contract slipped?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bernstein_determinism.ids import first_unordered
from bernstein_determinism.links import Difference, compare_turns
from bernstein_determinism.symptoms import SYMPTOMS, Kind
from bernstein_determinism.turn_record import TurnRecord, turns_of
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The turns of one run, in the order of its journal."""

    run_id: str
    turns: tuple[TurnRecord, ...]


@dataclass(frozen=True, slots=True)
class ReportDiff:
    """The first difference; `index` is the turn's place, null where there is none."""

    diverged: bool
    index: int | None
    reason_code: str
    fields: tuple[str, ...]
    a: JsonValue
    b: JsonValue


@dataclass(frozen=True, slots=True)
class Slip:
    """A turn in which two runs part, the contract that is broken, and the likely cause."""

    index: int
    turn_id: str
    contract: int | None
    kind: Kind
    place: str
    fields: tuple[str, ...]
    seen: str
    cause: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of two runs found: the first slip of each turn that has one."""

    run_id_a: str
    run_id_b: str
    turn_count: int
    slips: tuple[Slip, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.slips


def replay_report(run_id: str, chunks: Iterable[bytes]) -> ReplayReport:
    """Read a run's turns. Raises RowMalformed, InvalidInput for a run that has none."""
    turns = tuple(turns_of(chunks))
    if not turns:
        raise InvalidInput(
            f"run {run_id} has no recorded turns; record some with bernstein_determinism",
            run_id=run_id,
        )
    return ReplayReport(run_id, turns)


def diff_reports(a: ReplayReport, b: ReplayReport) -> ReportDiff:
    """The first difference, by turn; ids, times and modes never count."""
    shifted = _first_shifted(a, b)
    for index, (was, now) in enumerate(zip(a.turns, b.turns, strict=False)):
        if index == shifted:
            code = SYMPTOMS[Kind.ORDER].reason_code
            return ReportDiff(True, index, code, ("turn_id",), was.turn_id, now.turn_id)
        found = compare_turns(was, now)
        if found is not None:
            return ReportDiff(True, index, found.reason_code, found.fields, found.a, found.b)
    if len(a.turns) != len(b.turns):
        code = SYMPTOMS[Kind.LENGTH].reason_code
        counts = len(a.turns), len(b.turns)
        return ReportDiff(True, min(counts), code, ("turns",), *counts)
    return ReportDiff(False, None, "", (), None, None)


def check_runs(a: ReplayReport, b: ReplayReport) -> Checked:
    """Which contract slipped between two runs of the same turns, by the table of symptoms."""
    shifted = _first_shifted(a, b)
    turns_b = b.turns if shifted is None else _in_order_of(a.turns, b.turns)
    slips = [
        _slip(index, was, found)
        for index, (was, now) in enumerate(zip(a.turns, turns_b, strict=False))
        if (found := compare_turns(was, now)) is not None
    ]
    if shifted is not None:
        was, now = a.turns[shifted].turn_id, b.turns[shifted].turn_id
        found = Difference(Kind.ORDER, f"row {shifted}", ("turn_id",), was, now)
        slips.append(_slip(shifted, a.turns[shifted], found))
    shared = min(len(a.turns), len(b.turns))
    if len(a.turns) != len(b.turns):
        counts = len(a.turns), len(b.turns)
        found = Difference(Kind.LENGTH, f"turn {shared}", ("turns",), *counts)
        longer = a.turns if len(a.turns) > shared else b.turns
        slips.append(_slip(shared, longer[shared], found))
    slips += [*_order_slips(a), *_order_slips(b)]
    return Checked(a.run_id, b.run_id, shared, tuple(slips), tuple(_notes(a, b)))


def _first_shifted(a: ReplayReport, b: ReplayReport) -> int | None:
    """Where two runs first differ in the order of the same turns; None where they do not."""
    names = [[turn.turn_id for turn in each.turns] for each in (a, b)]
    if sorted(names[0]) != sorted(names[1]) or len({*names[0]}) < len(names[0]):
        return None
    pairs = enumerate(zip(*names, strict=True))
    return next((at for at, (was, now) in pairs if was != now), None)


def _in_order_of(a: Sequence[TurnRecord], b: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
    by_name = {turn.turn_id: turn for turn in b}
    return tuple(by_name[turn.turn_id] for turn in a)


def _slip(index: int, turn: TurnRecord, found: Difference) -> Slip:
    symptom = SYMPTOMS[found.kind]
    return Slip(
        index,
        turn.turn_id,
        symptom.contract,
        found.kind,
        found.place,
        found.fields,
        symptom.seen,
        symptom.cause,
    )


def _order_slips(report: ReplayReport) -> list[Slip]:
    at = first_unordered([turn.record_id for turn in report.turns])
    if at is None:
        return []
    turn = report.turns[at]
    place = f"run {report.run_id}, turn {turn.turn_id}"
    return [_slip(at, turn, Difference(Kind.ORDER, place, ("record_id",), None, turn.record_id))]


def _notes(a: ReplayReport, b: ReplayReport) -> list[str]:
    notes = []
    modes = [_modes(report.turns) for report in (a, b)]
    if modes[0] != modes[1]:
        notes.append(
            f"the modes differ ({', '.join(modes[0])} and {', '.join(modes[1])}); each fingerprint"
            " holds its mode, so only the other components were compared"
        )
    return notes


def _modes(turns: Sequence[TurnRecord]) -> list[str]:
    return sorted({turn.mode.value for turn in turns})
