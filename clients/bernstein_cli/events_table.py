"""What `replay RUN` shows: one line a row, whatever the row holds.

Times are shown, not believed: they are in no hash, and clocks go back (field case F25).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bernstein_cli.table import fitted
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_formats.journal_reader import LineBlocks, Row, is_blank, parse_row

_NAMES: Final = ("#", "TIME", "EVENT", "AGENT", "TASK", "DETAIL")
_WIDTHS: Final = (6, 8, 26, 18, 26, 4000)
_LONGEST_SECONDS: Final = 359_999.0  # 5999:59


class Rows:
    """A journal's rows, one after the other; what is on its other lines is counted."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._blocks = LineBlocks(chunks)
        self.discarded_count = 0

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            for line in block:
                row = self._row(line)
                if row is not None:
                    yield row

    def _row(self, line: bytes) -> Row | None:
        try:
            value = parse_row(line)
        except InvalidInput:
            self.discarded_count += not is_blank(line)
            return None
        if isinstance(value, dict):
            return value
        self.discarded_count += 1
        return None


def event_lines(
    rows: Iterable[Row], columns: int, note: Callable[[str], None], first: int = 0
) -> Iterator[str]:
    """The table, line by line; `first` is the first row's position, `note` hears where a clock
    went back."""
    yield fitted(_NAMES, _WIDTHS, columns)
    newest: float | None = None
    for position, row in enumerate(rows, first):
        ts = _number(row.get("ts"))
        if ts is not None and newest is not None and ts < newest:
            note(f"the clock went back before row {position}; times are no evidence")
        newest = ts if newest is None or (ts is not None and ts > newest) else newest
        yield fitted(_cells(position, row), _WIDTHS, columns)


def _cells(position: int, row: Row) -> tuple[str, ...]:
    return (
        str(position),
        _elapsed(row.get("elapsed_s")),
        _text(row.get("event")),
        _agent(row),
        _task(row),
        _detail(row),
    )


def _elapsed(value: JsonValue) -> str:
    """Minutes and seconds since the run's start; `-` where that is no such time."""
    seconds = _number(value)
    if seconds is None or not 0 <= seconds <= _LONGEST_SECONDS:
        return "-"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _agent(row: Row) -> str:
    agent, role = _text(row.get("agent_id")), _text(row.get("role"))
    if not role:
        role, _, agent = agent.rpartition("-")
    return f"{role} {agent[-6:]}".strip()


def _task(row: Row) -> str:
    if "task_id" in row:
        return _text(row["task_id"])
    tasks = row.get("task_ids")
    return ", ".join(map(_text, tasks[:2])) if isinstance(tasks, list) else ""


def _detail(row: Row) -> str:
    signals = row.get("failed_signals")
    facts = (
        ("model", _text(row.get("model"))),
        ("cost", _text(row.get("cost_usd"))),
        ("run", _text(row.get("run_id"))),
        ("max agents", _text(row.get("max_agents"))),
        ("ticks", _text(row.get("ticks"))),
        ("tick", _text(row.get("tick"))),
        ("fingerprint", _text(row.get("fingerprint"))[:12]),
        ("failed", ", ".join(map(_text, signals[:3])) if isinstance(signals, list) else ""),
        ("outcome", _text(row.get("outcome"))),
    )
    return "  ".join(f"{name}={value}" for name, value in facts if value)


def _text(value: JsonValue) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value)[:200]


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
