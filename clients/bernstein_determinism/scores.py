"""`compare_scored`: did scored turns get better or worse?

Pure, in decimal arithmetic. Cases pair by the turn's id; the order of rows does not matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Final

from bernstein_determinism.turn_record import SCORE_EVENT
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.journal_reader import accepted_rows

_NOTHING: Final = Decimal(0)
# Beyond this, differences leave the range of decimal arithmetic.
_EXPONENT_MAX: Final = 1000
_CHARACTERS_MAX: Final = 100


class Outcome(StrEnum):
    """What became of one metric of one case."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class ScoredReport:
    """Scores by case and metric, of one version of one scorer."""

    scorer: str
    scorer_version: str
    scores: Mapping[tuple[str, str], Decimal]


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """One metric of one case in both reports; None where it is missing."""

    case: str
    metric: str
    outcome: Outcome
    baseline: Decimal | None
    candidate: Decimal | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All metrics of all cases, by case and metric."""

    changes: tuple[ScoreChange, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing got worse or went away."""
        return not (self.count(Outcome.WORSE) or self.count(Outcome.REMOVED))

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome is outcome for each in self.changes)


def is_usable(value: object) -> bool:
    """Whether a score can be written, read again and compared."""
    return (
        isinstance(value, Decimal)
        and value.is_finite()
        and abs(value.adjusted()) <= _EXPONENT_MAX
        and len(str(value)) <= _CHARACTERS_MAX
    )


def scored_report(chunks: Iterable[bytes]) -> ScoredReport:
    """The scores in a run's journal; a later one of the same case and metric counts.

    Raises RowMalformed, InvalidInput where there are none or several scorers.
    """
    scorers: set[tuple[str, str]] = set()
    scores: dict[tuple[str, str], Decimal] = {}
    for line, row in accepted_rows(chunks):
        if row.get("event") == SCORE_EVENT:
            scorer, place, value = _score(row, line + 1)
            scorers.add(scorer)
            scores[place] = value
    if not scorers:
        raise InvalidInput("no turn is scored; record scores with runtime.score(...)")
    if len(scorers) > 1:
        named = ", ".join(f"{name} {version}" for name, version in sorted(scorers))
        raise InvalidInput(f"a report has one version of one scorer, not these: {named}")
    return ScoredReport(*scorers.pop(), scores)


def compare_scored(
    baseline: ScoredReport, candidate: ScoredReport, *, tolerance: Decimal = _NOTHING
) -> Comparison:
    """Compare; scores no further apart than `tolerance` are equal, and more is better.

    Raises InvalidInput for reports of different scorers, which do not measure the same.
    """
    scorers = [(each.scorer, each.scorer_version) for each in (baseline, candidate)]
    if scorers[0] != scorers[1]:
        raise InvalidInput(
            f"scored by {' '.join(scorers[0])} and by {' '.join(scorers[1])}: score both with one"
        )
    if not tolerance.is_finite() or not 0 <= tolerance <= 10**_EXPONENT_MAX:
        raise InvalidInput(f"a tolerance of {tolerance}: give 0 or more", field="tolerance")
    places = sorted({*baseline.scores, *candidate.scores})
    return Comparison(
        tuple(
            _change(place, baseline.scores.get(place), candidate.scores.get(place), tolerance)
            for place in places
        )
    )


def _change(
    place: tuple[str, str], was: Decimal | None, now: Decimal | None, tolerance: Decimal
) -> ScoreChange:
    case, metric = place
    if was is None:
        return ScoreChange(case, metric, Outcome.ADDED, was, now)
    if now is None:
        return ScoreChange(case, metric, Outcome.REMOVED, was, now)
    outcome = Outcome.EQUAL
    if abs(now - was) > tolerance:
        outcome = Outcome.BETTER if now > was else Outcome.WORSE
    return ScoreChange(case, metric, outcome, was, now)


def _score(
    row: Mapping[str, JsonValue], line: int
) -> tuple[tuple[str, str], tuple[str, str], Decimal]:
    match row:
        case {
            "turn_id": str() as case,
            "metric": str() as metric,
            "value": str() as text,
            "scorer": str() as scorer,
            "scorer_version": str() as version,
        } if len(text) <= _CHARACTERS_MAX:
            return (scorer, version), (case, metric), _decimal(text, line)
    raise RowMalformed(f"line {line}: the score cannot be read", line=line)


def _decimal(text: str, line: int) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not is_usable(value):
        raise RowMalformed(f"line {line}: the score {text!r} is no usable number", line=line)
    return value
