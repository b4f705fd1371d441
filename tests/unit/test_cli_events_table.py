"""The table of a run's events: whatever a row holds, it is shown and nothing breaks."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bernstein_cli.events_table import Rows, event_lines

FIELD = Path(__file__).parents[1] / "vectors" / "data" / "field"


def table(rows, notes=None):
    return list(event_lines(rows, 200, (notes if notes is not None else []).append))


def test_a_row_is_shown_by_time_event_agent_task_and_what_matters():
    row = {
        "elapsed_s": 75.2,
        "event": "task_claimed",
        "agent_id": "backend-0123456789",
        "task_id": "t1",
        "model": "mock",
    }
    _, line = table([row])
    assert line.split() == ["0", "1:15", "task_claimed", "backend", "456789", "t1", "model=mock"]


def test_a_clock_that_goes_back_gives_no_negative_time_but_a_note():
    notes: list[str] = []
    chunks = [(FIELD / "F25" / "clock_jumps.jsonl").read_bytes()]
    lines = table(Rows(chunks), notes)
    times = [line.split()[1] for line in lines[1:]]
    assert times[:2] == ["0:00", "1:40"]
    assert times[2:4] == ["-", "-"]
    assert notes == ["the clock went back before row 2; times are no evidence"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(
    ["ts", "elapsed_s", "event", "agent_id", "role", "task_id", "task_ids", "failed_signals", "x"]
)


@given(st.lists(st.dictionaries(names, anything), max_size=4))
def test_no_row_breaks_the_table_or_leaves_its_line(rows):
    lines = table(rows)
    assert len(lines) == len(rows) + 1
    assert all(line.isprintable() for line in lines)


def test_integers_without_end_are_no_times():
    assert table([{"ts": 10**400, "elapsed_s": 10**400}])[1].split() == ["0", "-"]


def test_lines_without_a_row_are_counted_and_not_shown():
    rows = Rows([b'{"event": "a"}\n\n[1]\nnot json\n{"event": "b"}\n'])
    assert [row["event"] for row in rows] == ["a", "b"]
    assert rows.discarded_count == 2
