"""Laws of the live thread's client and of repair: how bytes are cut never matters."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.errors import JournalError
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.event_stream import EventParser, Gap, Step, ThreadCursor
from bernstein_formats.journal_repair import (
    physical_lines,
    plan_recovery,
    plan_tail_repair,
    recovered_lines,
)
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.thread import project

payloads = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "größe"]), st.text() | st.integers(), max_size=2),
    min_size=1,
    max_size=6,
)
cuts = st.lists(st.integers(min_value=0, max_value=4000), max_size=8)


def journal(given_payloads: list[dict[str, str | int]]) -> bytes:
    head, lines = ChainHead(), []
    for payload in given_payloads:
        line, head = next_row(head, "x", json.dumps(payload).encode(), 1.0, 0.0)
        lines.append(line + b"\n")
    return b"".join(lines)


def cut(content: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(content) + 1) for place in places), len(content)]
    return [content[start:end] for start, end in pairwise(ends)]


@given(payloads, cuts, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_of_a_thread_gives_each_row_once_and_in_order(
    rows: list[dict[str, str | int]], places: list[int], line_end: bytes
) -> None:
    stream = b"".join(step.frame() for step in project([journal(rows)]))
    parser, cursor = EventParser(), ThreadCursor(-1)

    found = [
        cursor.take(event)
        for chunk in cut(stream.replace(b"\n", line_end), places)
        for event in parser.feed(chunk)
    ]

    assert [each.index for each in found if isinstance(each, Step)] == list(range(len(rows)))
    assert len(found) == len(rows)


@given(payloads, st.data())
def test_whatever_is_missing_is_asked_for_and_nothing_is_delivered_out_of_turn(
    rows: list[dict[str, str | int]], data: st.DataObject
) -> None:
    steps = list(project([journal(rows)]))
    sent = data.draw(st.lists(st.sampled_from(steps), max_size=12))
    parser, cursor = EventParser(), ThreadCursor(-1)
    delivered = []
    for event in parser.feed(b"".join(step.frame() for step in sent)):
        found = cursor.take(event)
        if isinstance(found, Step):
            delivered.append(found.index)
        if isinstance(found, Gap):
            assert found.resume_after == (delivered[-1] if delivered else -1)

    assert delivered == list(range(len(delivered)))


@given(st.binary(max_size=60), cuts)
def test_lines_are_all_of_the_bytes_and_do_not_depend_on_the_chunks(
    noise: bytes, places: list[int]
) -> None:
    content = noise.replace(b"\x00", b"\r").replace(b"\x01", b"\n").replace(b"\x02", b"\r\n")

    lines = list(physical_lines(cut(content, places)))

    assert b"".join(lines) == content
    assert lines == list(physical_lines([content]))


@given(payloads, st.integers(min_value=0), st.binary(max_size=40))
def test_a_repair_keeps_every_whole_row_whatever_a_crash_left(
    rows: list[dict[str, str | int]], place: int, noise: bytes
) -> None:
    content = journal(rows)
    kept = content[: place % (len(content) + 1)]
    whole = kept[: kept.rfind(b"\n") + 1]
    damaged = kept + noise.replace(b"\n", b"").replace(b"\r", b"")

    try:
        plan = plan_tail_repair(lambda: [damaged])
    except JournalError:
        plan = plan_recovery(lambda: [damaged])

    count = whole.count(b"\n")
    assert plan.event_count in {count, count + 1}  # a row may only lack its line feed
    if plan.repaired and plan.keep_bytes is None and not plan.adds_newline:
        after = b"".join(recovered_lines(lambda: [damaged]))
        assert verify_journal([after]).intact
        assert after.startswith(whole)
    elif plan.keep_bytes is not None:
        assert damaged[: plan.keep_bytes] == whole
