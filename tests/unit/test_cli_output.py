"""What the command prints, and what a terminal must never get to see raw."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bernstein_cli import output, progress
from bernstein_cli.table import fitted, table_lines

HOSTILE = "a\x1b[2Jb\r\nc\u202ed\ud800[bold]x[/bold]\x9b31m\x00"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_terminal_would_act_on_is_shown_as_its_escape():
    shown = output.printable(HOSTILE)
    assert shown == "a\\x1b[2Jb\\r\\nc\\u202ed\\ud800[bold]x[/bold]\\x9b31m\\x00"


@given(st.text(st.characters()))
def test_a_printed_line_is_always_one_printable_line(text):
    assert output.printable(text).isprintable()


def test_ordinary_text_is_printed_as_it_is():
    assert output.printable("Größe 日本 ✓ 🎉") == "Größe 日本 ✓ 🎉"


def test_json_holds_what_the_terminal_must_not_see_and_reads_back(capsys):
    output.document({"run_id": HOSTILE})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"run_id": HOSTILE}
    assert "\x1b" not in printed
    assert printed.isascii() or "\ud800" not in printed


def test_json_stays_json_where_a_row_holds_what_json_lacks(capsys):
    output.document({"rows": [{"a": float("nan"), "b": [float("-inf"), 1.5]}]})
    assert json.loads(capsys.readouterr().out) == {"rows": [{"a": "nan", "b": ["-inf", 1.5]}]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=4), st.none() | json_values)
def test_a_streamed_document_has_the_bytes_of_a_whole_one(rows, metadata):
    last = {} if metadata is None else {"metadata": metadata}
    assert printed_by(
        lambda: output.document_with_rows({"run_id": "r"}, "events", iter(rows), last)
    ) == printed_by(lambda: output.document({"run_id": "r", "events": rows, **last}))


def printed_by(act):
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        act()
        return sys.stdout.getvalue()
    finally:
        sys.stdout = before


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.is_coloured(Terminal())
    assert not output.is_coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.is_coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not output.is_coloured(Terminal())


def test_a_table_lines_its_columns_up_also_with_wide_characters():
    lines = list(table_lines(("A", "B"), [("日本", "x"), ("a", "y")], 80))
    assert lines == ["A     B", "日本  x", "a     y"]


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_line_is_never_wider_than_the_terminal(text, columns):
    assert len(fitted([text], [30], columns)) <= columns


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_progress_is_shown_on_a_terminal_once_work_takes_long(monkeypatch, clock):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.Progress("verifying") as report:
        report(10, 100)
        assert terminal.getvalue() == ""
        clock[0] += 1.5
        report(50, 100)
        assert "verifying [############............]  50%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_progress_is_never_shown_elsewhere(monkeypatch, clock):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.Progress("verifying") as report:
        clock[0] += 100
        report(50, 100)
    assert stream.getvalue() == ""


def test_progress_without_a_known_end_shows_the_amount():
    assert progress.progress_text(3 * 1024 * 1024, 0) == "3.0 MiB"
