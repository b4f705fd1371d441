"""Tables of `bernstein determinism`, for people."""

from collections.abc import Sequence

from bernstein_cli.output import GREEN, RED, say
from bernstein_cli.table import table_lines, width
from bernstein_determinism.chain import ChainReport
from bernstein_determinism.reports import Checked, ReportDiff
from bernstein_determinism.runtime import ReplayResult
from bernstein_determinism.scores import Comparison, Outcome

_SHOWN_CHARACTERS = 24


def show_checked(found: Checked) -> None:
    runs = f"{found.run_id_a} and {found.run_id_b}"
    for note in found.notes:
        say(f"note: {note}")
    if found.ok:
        say(f"no contract slipped: {found.turn_count} turns of {runs} are the same", GREEN)
        return
    say(f"{len(found.slips)} slips between {runs}", RED)
    _table(
        ("TURN", "CONTRACT", "KIND", "FIELDS", "WHERE"),
        [
            (
                each.turn_id,
                "-" if each.contract is None else str(each.contract),
                each.kind,
                ", ".join(each.fields),
                each.place,
            )
            for each in found.slips
        ],
    )
    first = found.slips[0]
    say(f"{first.seen}; likely: {first.cause}")


def show_diff(found: ReportDiff, runs: tuple[str, str]) -> None:
    if not found.diverged:
        say(f"{runs[0]} and {runs[1]} are equal", GREEN)
        return
    say(f"they part at turn {found.index}: {found.reason_code}", RED)
    rows = [(", ".join(found.fields), str(found.a), str(found.b))]
    _table(("FIELDS", runs[0], runs[1]), rows)


def show_chain(found: ChainReport, run_id: str) -> None:
    text = (
        f"{run_id}: {found.turn_count} turns in {found.row_count} rows, coverage"
        f" {found.coverage}, identity {found.identity}"
    )
    say(text, GREEN if found.ok else RED)
    if found.faults:
        _table(
            ("TURN", "FAULT", "WHAT"),
            [
                ("-" if each.index is None else str(each.index), each.kind, each.detail)
                for each in found.faults
            ],
        )


def show_comparison(found: Comparison) -> None:
    counts = ", ".join(f"{found.count(each)} {each}" for each in Outcome if found.count(each))
    say(counts or "nothing was scored", GREEN if found.ok else RED)
    _table(
        ("TURN", "METRIC", "OUTCOME", "BASELINE", "CANDIDATE"),
        [
            (
                each.case,
                each.metric,
                each.outcome,
                "-" if each.baseline is None else str(each.baseline),
                "-" if each.candidate is None else str(each.candidate),
            )
            for each in found.changes
        ],
    )


def show_replay(results: Sequence[ReplayResult], run_id: str) -> None:
    is_ok = all(each.ok for each in results)
    what = "every link is the recorded one" if is_ok else "not as recorded"
    say(f"{len(results)} turns replayed into {run_id}: {what}", GREEN if is_ok else RED)
    _table(
        ("TURN", "LINKS", "CALLS", "UNUSED", "FINGERPRINT", "REPLAY OF"),
        [
            (
                each.row.turn_id,
                str(each.links_compared),
                str(each.provider_calls),
                str(len(each.unused)),
                each.row.fingerprint_composite[:_SHOWN_CHARACTERS],
                each.row.replay_of_event_id or "-",
            )
            for each in results
        ],
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in table_lines(names, rows, width()):
        say(line)
