import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.canonical import Profile
from bernstein_formats.event_journal import RESERVED_NAMES, ChainHead, next_row
from bernstein_formats.journal_reader import load_events
from bernstein_formats.journal_verify import JournalSeal, rebuild_state, verify_journal

NAMES = st.text(max_size=8).filter(lambda name: name not in RESERVED_NAMES)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(NAMES, VALUES, max_size=4)
EVENTS = st.lists(st.tuples(st.text(max_size=8), PAYLOADS), min_size=1, max_size=6)


def lines_of(events, profile):
    head, lines = ChainHead(profile=profile), []
    for number, (event, payload) in enumerate(events):
        line, head = next_row(head, event, payload, 1.5 + number, float(number))
        lines.append(line + b"\n")
    return lines, head


@given(EVENTS, st.sampled_from(Profile))
def test_rows_made_here_verify(events, profile):
    lines, head = lines_of(events, profile)
    verification = verify_journal(lines, JournalSeal(head.head_hash, head.index))
    assert verification.intact
    assert verification.identity == "verified"
    assert rebuild_state(lines, len(lines)).head_hash == head.head_hash


@given(EVENTS, st.sampled_from(Profile))
def test_a_row_from_text_is_the_row_from_the_value(events, profile):
    head = ChainHead(profile=profile)
    for event, payload in events:
        text = json.dumps(payload).encode()
        assert next_row(head, event, payload, 1.5, 2.5) == next_row(head, event, text, 1.5, 2.5)


@given(EVENTS, st.data())
def test_a_changed_member_is_found(events, data):
    lines, _ = lines_of(events, Profile.PY_JSON)
    at = data.draw(st.integers(0, len(lines) - 1))
    row = json.loads(lines[at])
    name = data.draw(st.sampled_from([name for name in row if name not in {"ts", "elapsed_s"}]))
    new = data.draw(VALUES)
    if repr(new) == repr(row[name]):
        del row[name]
    else:
        row[name] = new
    lines[at] = json.dumps(row).encode() + b"\n"
    assert not verify_journal(lines).intact


@given(EVENTS, st.data())
def test_a_change_of_the_clock_members_is_no_change(events, data):
    lines, head = lines_of(events, Profile.PY_JSON)
    at = data.draw(st.integers(0, len(lines) - 1))
    row = json.loads(lines[at])
    row["ts"], row["elapsed_s"] = data.draw(VALUES), data.draw(VALUES)
    lines[at] = json.dumps(row).encode() + b"\n"
    verification = verify_journal(lines)
    assert verification.intact
    assert verification.head == head.head_hash


@given(EVENTS, st.data())
def test_a_dropped_repeated_or_moved_row_is_found(events, data):
    lines, head = lines_of([*events, ("last", {})], Profile.PY_JSON)
    at = data.draw(st.integers(0, len(lines) - 2))
    dropped = lines[:at] + lines[at + 1 :]
    repeated = lines[: at + 1] + lines[at:]
    moved = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    for damaged in dropped, repeated, moved:
        assert not verify_journal(damaged, JournalSeal(head.head_hash, head.index)).intact
        assert not verify_journal(damaged).chain_consistent


@given(EVENTS, st.sampled_from(Profile), st.data())
def test_where_chunks_are_cut_makes_no_difference(events, profile, data):
    whole = bytearray(b"".join(lines_of(events, profile)[0]))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(whole)))
        whole[at:at] = data.draw(st.sampled_from([b"\r", b"\n", b"\r\n", b"\xff", b"{}", b" "]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *cuts, len(whole)]
    chunks = [bytes(whole[a:b]) for a, b in pairwise(edges)]
    assert verify_journal([bytes(whole)]) == verify_journal(chunks)
    assert load_events([bytes(whole)]) == load_events(chunks)


@given(st.binary(max_size=200))
def test_no_bytes_stop_the_reader(data):
    verification = verify_journal([data])
    assert verification.count == len(load_events([data]).events)
