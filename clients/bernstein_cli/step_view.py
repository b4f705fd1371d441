"""What is shown of steps: a table, one step in full, and the way forward and back through them."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click

from bernstein_cli.output import Printed, json_text, say
from bernstein_cli.step_source import Steps
from bernstein_cli.table import fitted
from bernstein_formats.canonical import JsonValue
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal_reader import entries, physical_lines

_NAMES: Final = ("SEQ", "STEP", "MODEL", "TOOL CALL", "PROMPT")
_WIDTHS: Final = (6, 16, 18, 18, 4000)
_IN_FULL: Final = (
    "model",
    "effort",
    "prompt",
    "tool_call",
    "tool_result",
    "input_hash",
    "blob_refs",
)
_NEXT: Final = ("n", " ", "\r", "\x1b[C")
_BACK: Final = ("p", "\x7f", "\x1b[D")
_QUIT: Final = ("q", "\x03", "\x04", "\x1b")
_HELP: Final = "n next · p back · g first · G last · q quit"


def step_lines(rows: Iterable[Row], columns: int) -> Iterator[str]:
    """The table, line by line."""
    yield fitted(_NAMES, _WIDTHS, columns)
    for row in rows:
        yield fitted(_cells(row), _WIDTHS, columns)


def projection(row: Row) -> dict[str, Printed]:
    """A step in short, as `replay debug` gives it."""
    return {
        "seq": _text(row["seq"]) if not isinstance(row["seq"], int) else row["seq"],
        "step_hash": _text(row["step_hash"]),
        "prev_hash": _text(row["prev_hash"]),
        "model": row.get("model"),
        "tool_call": _tool(row.get("tool_call")),
    }


def walk(steps: Steps) -> None:
    """Show one step after the other, as the keys say; stdin and stdout are a terminal."""
    places = _places(steps)
    position = 0
    while True:
        click.clear()
        start, end = places[position]
        for row in entries(steps.chunks(start, end)):
            for line in full_lines(row):
                say(line)
        say(f"-- step {position + 1} of {len(places)} -- {_HELP}")
        sys.stdout.flush()
        moved = moved_to(position, click.getchar(), len(places))
        if moved is None:
            return
        position = moved


def moved_to(position: int, key: str, count: int) -> int | None:
    """Where a key leads; None: it ends the walk."""
    if key in _QUIT:
        return None
    ends = {"g": 0, "G": count - 1}
    if key in ends:
        return ends[key]
    step = (key in _NEXT) - (key in _BACK)
    return min(max(position + step, 0), count - 1)


def full_lines(row: Row) -> Iterator[str]:
    """One step with all it holds."""
    yield f"step {row['seq']}  {row['step_hash']}"
    for name in _IN_FULL:
        value = row.get(name)
        if value is None or value == []:
            continue
        lines = value.splitlines() if isinstance(value, str) else json_text(value).splitlines()
        yield f"{name}:"
        yield from (f"  {line}" for line in lines or [""])


def _places(steps: Steps) -> list[tuple[int, int]]:
    """Where each row's line begins and ends; none of them is kept."""
    places, start = [], 0
    for line in physical_lines(steps.chunks()):
        end = start + len(line)
        if any(True for _ in entries([line])):
            places.append((start, end))
        start = end
    return places


def _cells(row: Row) -> tuple[str, ...]:
    return (
        _text(row["seq"]),
        _text(row["step_hash"])[:16],
        _text(row.get("model")),
        _tool(row.get("tool_call")) or "",
        _text(row.get("prompt")),
    )


def _tool(call: JsonValue) -> str | None:
    """The name of what was called."""
    if isinstance(call, dict):
        name = call.get("name")
        return name if isinstance(name, str) else None
    return call if isinstance(call, str) else None


def _text(value: JsonValue) -> str:
    if value is None:
        return ""
    return (value if isinstance(value, str) else json_text(value))[:200]
