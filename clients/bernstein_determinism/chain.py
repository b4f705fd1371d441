"""`verify_chain_integrity`: is a run's ledger of turns whole, unedited and in order?

Rules: docs/formats/determinism.md, section 9. A chain that is consistent need not be complete, so
coverage and identity are told apart from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bernstein_determinism.ids import first_unordered, parse_ulid, verify_replay_links
from bernstein_determinism.turn_record import TURN_EVENT, TurnRecord, parse_turn
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.journal_verdict import JournalSeal
from bernstein_formats.journal_verify import verify_journal


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong; `index` is the turn's place among the turns, null where it is none's."""

    index: int | None
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The three facts of a chain, and what is wrong with it."""

    ok: bool
    row_count: int
    turn_count: int
    head: str
    # "complete" or "partial".
    coverage: str
    # "verified", "mismatched" or "unverifiable".
    identity: str
    faults: tuple[Fault, ...]


def verify_chain_integrity(
    chunks: Iterable[bytes],
    *,
    seal: JournalSeal | None = None,
    originals: Sequence[TurnRecord] = (),
) -> ChainReport:
    """Verify a run's journal and the turns in it; never raises on content.

    With the turns that a run replays as `originals`, its links to them are checked one by one.
    """
    rows: list[Row] = []

    def watch(_index: int, row: Row) -> None:
        if row.get("event") == TURN_EVENT:
            rows.append(dict(row))

    found = verify_journal(chunks, seal, watch=watch)
    faults = [Fault(None, "chain", error) for error in found.errors] + [
        Fault(None, finding.reason, f"row {finding.index}") for finding in found.findings
    ]
    turns, broken = _read(rows)
    faults += broken + _order_faults(turns) + _link_faults(turns, originals)
    return ChainReport(
        ok=found.chain_consistent and not faults and not found.discarded_count,
        row_count=found.count,
        turn_count=len(rows),
        head=found.head,
        coverage=str(found.coverage),
        identity=str(found.identity),
        faults=tuple(faults),
    )


def _read(rows: Sequence[Row]) -> tuple[list[TurnRecord], list[Fault]]:
    turns: list[TurnRecord] = []
    faults: list[Fault] = []
    for index, row in enumerate(rows):
        try:
            turn = parse_turn(row)
            parse_ulid(turn.record_id)
            turns.append(turn)
        except (RowMalformed, InvalidInput) as error:
            faults.append(Fault(index, "turn_malformed", error.message))
    return turns, faults


def _order_faults(turns: Sequence[TurnRecord]) -> list[Fault]:
    at = first_unordered([turn.record_id for turn in turns])
    if at is None:
        return []
    return [Fault(at, "order_mismatch", f"record id {turns[at].record_id} does not increase")]


def _link_faults(turns: Sequence[TurnRecord], originals: Sequence[TurnRecord]) -> list[Fault]:
    if not originals:
        return []
    links = [(turn.record_id, turn.replay_of_event_id) for turn in turns]
    replayed = {turn.replay_of_event_id for turn in turns}
    wanted = [each.record_id for each in originals if each.record_id in replayed]
    wrong = verify_replay_links(links, wanted or [each.record_id for each in originals])
    return [Fault(None, "link_mismatch", wrong)] if wrong else []
