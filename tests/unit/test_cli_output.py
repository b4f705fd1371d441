"""What the command prints, and what a terminal must never get to see raw."""

import errno
import io
import json
import os
import stat
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bernstein_cli import output, progress
from bernstein_cli.table import fitted, table_lines
from bernstein_formats.errors import StoreFailed

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
    assert all(line.isprintable() for line in printed.splitlines())


@given(st.text(st.characters()))
def test_json_is_printable_and_says_the_same_whatever_the_text(text):
    for spelled in (output.json_text({text: [text]}), output.json_line({text: [text]})):
        assert spelled.replace("\n", "").isprintable()
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        assert json.loads(spelled) == {joined: [joined]}
    assert "\n" not in output.json_line({text: [text]})


def test_a_row_that_cannot_be_read_leaves_nothing_of_the_document(capsys):
    def rows():
        yield {"index": 0}
        raise StoreFailed("the disk went away")

    with pytest.raises(StoreFailed):
        output.document_with_rows({"run_id": "r"}, "events", rows(), {})
    assert capsys.readouterr().out == ""


class Broken(io.StringIO):
    """A stream on which nothing can be written, until its descriptor is another one."""

    def __init__(self, number, error):
        super().__init__()
        self.number, self.error = number, error

    def fileno(self):
        return self.number

    def flush(self):
        if not stat.S_ISCHR(os.fstat(self.number).st_mode):  # it goes nowhere by now
            raise self.error


@pytest.fixture
def spare():
    """A descriptor that a test may have replaced."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EIO, "gone")])
def test_a_stderr_that_is_broken_decides_nothing(monkeypatch, spare, error):
    monkeypatch.setattr(sys, "stderr", Broken(spare, error))

    def answer():
        output.remark("unheard")
        return 7

    assert output.with_outputs("it", answer) == 7


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BrokenPipeError(), (141, "")),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            (1, "it: cannot write the output: No space left on device [STORE_FAILED]\n"),
        ),
    ],
)
def test_a_stdout_that_cannot_be_written_fails_the_command(
    monkeypatch, capsys, spare, error, outcome
):
    monkeypatch.setattr(sys, "stdout", Broken(spare, error))

    def answer():
        output.document({"a": 1})
        return 0

    code = output.with_outputs("it", answer)
    assert outcome == (code, capsys.readouterr().err)


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
    shown = fitted([text], [30], columns)
    assert sum(1 for each in shown if not unicodedata.combining(each)) <= columns


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
