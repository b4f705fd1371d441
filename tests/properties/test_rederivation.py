"""Laws of re-derivation (re-derivation, section 14), over legal schedules of random plans."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.canonical import JsonValue, Profile
from bernstein_formats.event_journal import event_hash, payload_hash
from bernstein_formats.journal_reader import Row
from bernstein_formats.rederivation import rederive
from bernstein_formats.schedule_rules import ScheduleRules

profiles = st.sampled_from(Profile)
free_values = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.floats(-9, 9))
Event = tuple[str, dict[str, JsonValue]]


def journal(events: list[Event], profile: Profile = Profile.PY_JSON) -> list[Row]:
    """Chain the events as a recorder does."""
    rows: list[Row] = []
    head = ""
    for index, (event, payload) in enumerate(events):
        body = dict(payload)
        if profile is not Profile.PY_JSON:
            body["hash_profile"] = profile.value
        payload_hex = payload_hash(body, event, profile)
        row_hash = event_hash(head, event, payload_hex, index, profile)
        rows.append(
            {
                "ts": 1.0,
                "elapsed_s": 0.0,
                "index": index,
                "event": event,
                "prev_hash": head,
                "payload_hash": payload_hex,
                "event_hash": row_hash,
                **body,
            }
        )
        head = row_hash
    return rows


def as_bytes(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@st.composite
def legal_runs(draw) -> list[Event]:
    """A random plan and a schedule of it that keeps the rules."""
    names = [f"t{at}" for at in range(draw(st.integers(1, 6)))]
    depends_on = {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else []
        for at, name in enumerate(names)
    }
    nodes: list[JsonValue] = [{"id": name, "depends_on": depends_on[name]} for name in names]
    events: list[Event] = [("plan.graph.full", {"nodes": nodes})]
    held: list[str] = []
    done: set[str] = set()
    for _ in range(draw(st.integers(0, 20))):
        ready = [
            name
            for name in names
            if name not in held and name not in done and done.issuperset(depends_on[name])
        ]
        moves = [("task_claimed", name) for name in ready]
        moves += [(event, name) for name in held for event in OUTCOMES]
        moves.append(("note", draw(st.sampled_from(names))))
        event, name = draw(st.sampled_from(moves))
        events.append((event, {"task_id": name, "extra": draw(free_values)}))
        if event == "task_claimed":
            held.append(name)
        elif event in ("task_completed", "task_retried"):
            held.remove(name)
            if event == "task_completed":
                done.add(name)
    return events


OUTCOMES = ("task_completed", "task_verification_failed", "task_retried")


@given(legal_runs(), profiles)
def test_a_legal_schedule_follows_from_its_plan_under_either_profile(events, profile):
    rows = journal(events, profile)
    answer = rederive([as_bytes(rows)], "r")
    assert answer.ok
    assert answer.derived_head == rows[-1]["event_hash"]
    assert (answer.step_count, answer.notes) == (len(rows), ())


@given(legal_runs(), st.integers(0, 20))
def test_a_clean_prefix_is_accepted(events, cut):
    kept = events[: max(1, len(events) - cut)]
    assert rederive([as_bytes(journal(kept))], "r").ok


@given(legal_runs(), free_values)
def test_a_row_of_an_unknown_type_changes_no_verdict(events, value):
    assert rederive(
        [as_bytes(journal([*events, ("seen.for.the.first.time", {"v": value})]))], "r"
    ).ok


@given(legal_runs(), st.floats(allow_nan=False, allow_infinity=False))
def test_times_never_change_the_answer(events, ts):
    rows = journal(events)
    edited = [{**row, "ts": ts, "elapsed_s": None} for row in rows]
    assert rederive([as_bytes(edited)], "r") == rederive([as_bytes(rows)], "r")


@given(legal_runs(), st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\n \n"]), st.booleans())
def test_spacing_member_order_line_ends_and_chunks_never_change_the_verdict(
    events, chunk_bytes, end, spaced
):
    rows = journal(events)
    data = as_bytes(rows)
    spelt = "".join(
        json.dumps(
            dict(reversed(row.items())), indent=None, separators=(" , ", " : ") if spaced else None
        )
        + end
        for row in rows
    ).encode()
    chunks = [spelt[at : at + chunk_bytes] for at in range(0, len(spelt), chunk_bytes)]
    assert rederive(chunks, "r") == rederive([data], "r")


@given(legal_runs())
def test_asking_twice_gives_the_same_answer(events):
    data = as_bytes(journal(events))
    assert rederive([data], "r") == rederive([data], "r")


@given(legal_runs(), st.data())
def test_a_second_claim_is_refused_at_its_own_step(events, data):
    claims = [at for at, (event, _) in enumerate(events) if event == "task_claimed"]
    if not claims:
        return
    at = data.draw(st.sampled_from(claims))
    rows = journal([*events[: at + 1], events[at], *events[at + 1 :]])
    answer = rederive([as_bytes(rows)], "r")
    assert (answer.step_index, answer.rule) == (at + 1, "task_already_claimed")
    assert answer.derived_head == rows[at]["event_hash"]


@given(legal_runs(), st.data())
def test_an_edited_payload_is_named_by_its_row(events, data):
    rows = journal(events)
    at = data.draw(st.integers(0, len(rows) - 1))
    rows[at]["edited"] = True
    answer = rederive([as_bytes(rows)], "r")
    assert (answer.reason_code, answer.step_index) == ("head_mismatch", at)


@given(legal_runs())
def test_a_recorder_that_asks_the_rules_first_records_what_follows(events):
    rules = ScheduleRules()
    for event, payload in events:
        assert rules.refusal(event, payload) is None
        assert rules.advance(event, payload) is None


@given(st.binary(max_size=300))
def test_no_bytes_raise(data):
    assert not rederive([data], "r").ok
