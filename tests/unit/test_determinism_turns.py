"""Turns in memory: equal whatever the threads do, and each broken link has its name."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bernstein_determinism.chain import verify_chain_integrity
from bernstein_determinism.channels import (
    Reducer,
    append_reducer,
    last_write_reducer,
    union_reducer,
)
from bernstein_determinism.ids import UlidFactory
from bernstein_determinism.links import compare_turns
from bernstein_determinism.memory import memory_runtime
from bernstein_determinism.observers import CONTINUE, Emit
from bernstein_determinism.prompts import PromptContribution
from bernstein_determinism.reports import ReplayReport, check_runs, diff_reports
from bernstein_determinism.runtime import assert_turn_deterministic, replay_turn
from bernstein_determinism.scores import Outcome, compare_scored, scored_report
from bernstein_determinism.symptoms import SYMPTOMS, Kind, explain
from bernstein_determinism.turn_record import SCORE_EVENT, TURN_EVENT, parse_turn
from bernstein_formats import errors
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.strict_json import canonicalize

CHANNELS: dict[str, Reducer[Any]] = {
    "notes": append_reducer,
    "tags": union_reducer,
    "last": last_write_reducer,
}


class Shouts:
    """Emits where the model shouts."""

    name = "shouts"

    def on_chunk(self, chunk):
        return Emit("tags", "loud") if "!" in chunk.text else CONTINUE


def echo(prompt):
    return f"you said: {prompt}! " * 4


def part(text):
    return [PromptContribution("p", 0, 0, text, required=True)]


def agent(turn):
    """Two nodes side by side, whose writes meet, and one that reads them."""

    def tool(node):
        node.write("notes", node.tool("double", {"of": 21}, lambda of: of * 2))
        node.write("last", node.name)

    def ask(node):
        node.write("notes", node.ask(part(f"about {turn.input}")))
        node.write("last", node.name)

    def merge(node):
        node.write("tags", len(str(node.read("notes"))))

    turn.step({"tool": tool, "ask": ask})
    turn.step({"merge": merge})


def runtime(respond=echo, mode=RuntimeMode.INTERACTIVE, channels=CHANNELS, **more):
    return memory_runtime(respond, channels, observers=more.pop("observers", [Shouts]), mode=mode)


def taken(run=agent, turn_input="teapots", **more):
    made, _ = runtime(**more)
    return made.take_turn(run, turn_input)


def replaying(**more):
    return runtime(mode=RuntimeMode.HEADLESS_REPLAY, **more)[0]


def test_a_turn_is_the_same_in_fresh_sessions_whatever_the_threads_do():
    assert_turn_deterministic([runtime()[0] for _ in range(20)], agent, "teapots")


def test_a_turn_that_looks_at_shared_state_is_found():
    count = iter(range(9))

    def counting(turn):
        turn.step({"n": lambda node: node.write("notes", next(count))})

    with pytest.raises(AssertionError, match="nodes wrote other values"):
        assert_turn_deterministic([runtime()[0] for _ in range(2)], counting, "x")


def test_a_row_of_a_turn_is_read_as_it_was_written_and_holds_no_prompt():
    row = taken()
    payload = row.payload()
    assert parse_turn(payload) == row
    assert row.views == {
        "notes": [f"{echo('about teapots')}", 42],
        "tags": ["loud", 108],
        "last": "tool",
    }
    asks = canonicalize([each.payload() for each in row.asks()])
    assert b"about teapots" not in asks


@pytest.mark.parametrize("member", ["turn_id", "steps", "views", "input", "content_sha256"])
def test_an_edited_row_is_no_row(member):
    payload = taken().payload()
    payload[member] = "other"
    with pytest.raises(errors.RowMalformed):
        parse_turn(payload)


def test_a_replay_repeats_every_link_calls_no_tool_and_links_its_row():
    row = taken()

    def without_tools(turn):
        def tool(node):
            node.write("notes", node.tool("double", {"of": 21}, lambda of: 1 / 0))
            node.write("last", node.name)

        step = turn.step
        turn.step = lambda nodes: step({**nodes, "tool": tool} if "tool" in nodes else nodes)
        agent(turn)

    result = replay_turn(row, without_tools, replaying())
    assert result.ok
    assert result.row.replay_of_event_id == row.record_id
    assert result.row.record_id > row.record_id
    assert result.row.content_sha256() == row.content_sha256()
    assert result.row.fingerprint_composite != row.fingerprint_composite  # it holds the mode
    again = replay_turn(result.row, without_tools, replaying())
    assert again.row.replay_of_event_id == result.row.record_id


def test_only_a_runtime_of_headless_replay_replays():
    with pytest.raises(errors.InvalidInput, match="headless-replay"):
        replay_turn(taken(), agent, runtime()[0])


class Silent(Shouts):
    def on_chunk(self, chunk):
        return CONTINUE


class Ambient:
    """A reducer that commutes within a process and differs from the one that recorded."""

    def __init__(self, salt):
        self.salt = salt

    def empty(self):
        return frozenset()

    def lift(self, write):
        return frozenset([str(write.value)])

    def join(self, a, b):
        return a | b

    def view(self, state):
        return [self.salt, *sorted(state)]


def other_prompt(turn):
    turn.step({"tool": lambda node: None, "ask": lambda node: node.ask(part("else"))})


def other_tool(turn):
    def tool(node):
        node.tool("double", {"of": 22}, lambda of: of)

    turn.step({"ask": lambda node: None, "tool": tool})


def ask_more(turn):
    def ask(node):
        node.ask(part(f"about {turn.input}"))
        node.ask(part("and more"))

    turn.step({"ask": ask, "tool": lambda node: None})


def no_steps(turn):
    """Does nothing."""


def other_writes(turn):
    def tool(node):
        node.write("notes", node.tool("double", {"of": 21}, lambda of: of))
        node.write("last", "something else")

    def ask(node):
        node.write("notes", node.ask(part(f"about {turn.input}")))
        node.write("last", node.name)

    turn.step({"tool": tool, "ask": ask})


@pytest.mark.parametrize(
    ("replayed", "more", "kind", "contract"),
    [
        (other_prompt, {}, Kind.PROMPT, 1),
        (agent, {"respond": lambda prompt: "something else"}, Kind.CHUNKS, None),
        (agent, {"observers": [Silent]}, Kind.VERDICTS, 3),
        (agent, {"channels": {**CHANNELS, "notes": Ambient("b")}}, Kind.CHANNEL, 4),
        (other_tool, {}, Kind.TOOL, None),
        (ask_more, {}, Kind.ACTIONS, None),
        (no_steps, {}, Kind.ACTIONS, None),
        (other_writes, {}, Kind.WRITES, None),
    ],
)
def test_a_broken_link_ends_the_replay_with_its_name(replayed, more, kind, contract):
    channels = {**CHANNELS, "notes": Ambient("a")} if kind is Kind.CHANNEL else CHANNELS
    row = taken(channels=channels)
    made, ledger = runtime(mode=RuntimeMode.HEADLESS_REPLAY, **more)
    with pytest.raises(errors.ReplayDivergenceError) as caught:
        replay_turn(row, replayed, made)
    facts = caught.value.metadata
    assert (facts["kind"], facts.get("contract")) == (kind, contract and str(contract))
    assert facts["replay_of_event_id"] == row.record_id
    assert explain(caught.value) == SYMPTOMS[kind].cause
    assert not [event for event, _ in ledger.rows if event == TURN_EVENT]
    assert "teapots" not in caught.value.message


def failing_tool(order):
    if order != 1:
        raise KeyError(f"\ud800 {order}")
    return "sent"


def going_on_after_a_tool(turn):
    """Says on a channel what it has seen of the failure."""

    def node(node):
        for order in (1, 2):
            try:
                node.write("notes", node.tool("find", {"order": order}, failing_tool))
            except errors.ToolFailed as error:
                node.write("notes", [error.message, error.metadata])

    turn.step({"n": node})


def busy(prompt):
    if "2" in prompt:
        raise errors.ProviderFailed("provider p answered 529", provider="p", status=529)
    return prompt


def going_on_after_a_call(turn):
    def node(node):
        for number in (1, 2, 3):
            try:
                node.write("notes", node.ask(part(f"question {number}")))
            except errors.ProviderFailed as error:
                node.write("notes", [error.message, error.metadata])

    turn.step({"n": node})


@pytest.mark.parametrize("going_on", [going_on_after_a_tool, going_on_after_a_call])
def test_an_agent_that_goes_on_after_a_failure_sees_it_again_in_the_replay(going_on):
    row = taken(going_on, respond=busy)
    again = parse_turn(json.loads(json.dumps(row.payload())))

    replayed = replay_turn(again, going_on, replaying(respond=str))  # failed calls are not asked

    assert replayed.ok
    assert replayed.row.content_sha256() == row.content_sha256()
    assert [each for step in row.steps for each in step.nodes["n"] if each.failure is not None]
    assert "2" in str(row.views["notes"])


def test_another_failure_than_the_recorded_one_is_another_turn():
    one, other = taken(going_on_after_a_tool), taken(going_on_after_a_tool)
    step = other.steps[0]
    failed = replace(step.nodes["n"][1], failure=None)
    other = replace(other, steps=(replace(step, nodes={"n": (step.nodes["n"][0], failed)}),))
    found = compare_turns(one, other)
    assert found is not None
    assert (found.kind, found.fields) == (Kind.TOOL, ("failure",))


def test_a_divergence_that_the_agent_catches_ends_the_replay_all_the_same():
    def swallowing(turn):
        def node(node):
            with suppress(Exception):
                node.ask(part(f"about {turn.input} {turn.recorded is not None}"))
            with suppress(Exception):
                node.write("notes", "went on")

        with suppress(Exception):
            turn.step({"n": node})

    with pytest.raises(errors.ReplayDivergenceError, match="prompt at turn"):
        replay_turn(taken(swallowing), swallowing, replaying())


def test_a_tool_that_uses_its_node_is_refused_when_it_is_recorded():
    def agent(turn):
        def node(node):
            with suppress(errors.DeterminismError, errors.ToolFailed):
                node.tool("greet", {}, lambda: node.write("notes", "hello"))

        turn.step({"n": node})

    with pytest.raises(errors.DeterminismError, match="used by its tool 'greet'"):
        taken(agent)


def test_a_result_that_is_no_json_ends_the_turn_though_the_agent_goes_on():
    def agent(turn):
        def node(node):
            with suppress(errors.CanonicalizationError):
                node.tool("look", {}, object)

        turn.step({"n": node})

    with pytest.raises(errors.CanonicalizationError):
        taken(agent)


def test_a_failure_that_a_tool_returns_as_a_value_is_replayed():
    def going_on(turn):
        def node(node):
            found = node.tool("find", {"order": 1}, lambda order: {"failed": "not there"})
            node.write("notes", found["failed"])

        turn.step({"n": node})

    assert replay_turn(taken(going_on), going_on, replaying()).ok


def test_another_version_is_told_before_anything_runs():
    row = replace(taken(), version="2")
    with pytest.raises(errors.ReplayDivergenceError, match="version at turn") as caught:
        replay_turn(row, agent, replaying())
    assert caught.value.metadata["kind"] == "version"


def test_a_reducer_that_does_not_commute_is_told_in_the_turn_itself():
    class Concatenation(Ambient):
        def empty(self):
            return ()

        def lift(self, write):
            return (write.value,)

        def join(self, a, b):
            return (*a, *b)

        def view(self, state):
            return list(state)

    with pytest.raises(errors.DeterminismError, match="channel 'notes'") as caught:
        taken(channels={**CHANNELS, "notes": Concatenation("")})
    assert caught.value.metadata["contract"] == "4"


def test_of_two_failing_nodes_the_first_by_name_is_told():
    barrier = threading.Barrier(2)

    def fail(node):
        barrier.wait(5)
        raise errors.InvalidInput(node.name)

    for _ in range(5):
        with pytest.raises(errors.InvalidInput, match="a"):
            taken(lambda turn: turn.step({"b": fail, "a": fail}))


def test_an_unknown_channel_names_the_known_ones():
    with pytest.raises(errors.InvalidInput, match="last, notes, tags"):
        taken(lambda turn: turn.step({"n": lambda node: node.write("nots", 1)}))


# --- two runs ---------------------------------------------------------------------------------


def report(name, *turns):
    return ReplayReport(name, turns)


def test_equal_runs_have_no_slip_and_no_difference():
    a, b = report("a", taken()), report("b", taken())
    assert check_runs(a, b).ok
    assert not diff_reports(a, b).diverged


SLIPS = [
    (taken, lambda: taken(turn_input="kettles"), Kind.INPUT, "input_mismatch"),
    (taken, lambda: replace(taken(), version="2"), Kind.VERSION, "version_mismatch"),
    (taken, lambda: taken(respond=lambda prompt: "x"), Kind.CHUNKS, "chunk_mismatch"),
    (taken, lambda: taken(observers=[Silent]), Kind.VERDICTS, "verdict_mismatch"),
    (taken, lambda: taken(no_steps), Kind.ACTIONS, "length_mismatch"),
]


@pytest.mark.parametrize(("make_a", "make_b", "kind", "code"), SLIPS)
def test_the_first_difference_of_two_runs_is_named_and_swaps_with_them(make_a, make_b, kind, code):
    a, b = report("a", make_a()), report("b", make_b())
    (slip,) = check_runs(a, b).slips
    assert (slip.kind, slip.contract) == (kind, SYMPTOMS[kind].contract)
    there, back = diff_reports(a, b), diff_reports(b, a)
    assert (there.reason_code, there.index) == (code, 0)
    assert (there.fields, there.a, there.b) == (back.fields, back.b, back.a)


def test_an_identity_in_the_parameters_of_a_call_is_contract_2():
    def asking(call):
        def run(turn):
            made, _ = runtime()
            model = replace(made.around.model, parameters={"metadata": {"call": call}})
            turn.step({"n": lambda node: node.ask(part("x"), model=model)})

        return run

    (slip,) = check_runs(report("a", taken(asking(1))), report("b", taken(asking(2)))).slips
    assert (slip.kind, slip.contract, slip.fields) == (Kind.FINGERPRINT, 2, ("parameters",))


def test_another_seed_is_another_setup_and_no_broken_contract():
    rows = [
        memory_runtime(echo, CHANNELS, seed=seed)[0].take_turn(
            lambda turn: turn.step({"n": lambda node: node.ask(part("x"))}), "x"
        )
        for seed in (1, 2)
    ]
    (slip,) = check_runs(report("a", rows[0]), report("b", rows[1])).slips
    assert (slip.kind, slip.contract, slip.fields) == (Kind.SETTINGS, None, ("seed",))


def test_ids_out_of_order_are_contract_5_and_a_longer_run_is_told():
    first, second = taken(), taken()
    checked = check_runs(report("a", first, second), report("b", second, first, first))
    kinds = [(slip.kind, slip.contract) for slip in checked.slips]
    assert kinds == [(Kind.LENGTH, None), (Kind.ORDER, 5)]
    assert diff_reports(report("a", first), report("b", first, second)).index == 1


def test_the_same_turns_in_another_order_are_contract_5_and_compared_by_name():
    made, _ = runtime()
    a, b, c = (made.take_turn(agent, text, turn_id=text) for text in "abc")
    checked = check_runs(report("x", a, b, c), report("y", a, c, b))
    assert [(each.kind, each.contract, each.index) for each in checked.slips] == [
        (Kind.ORDER, 5, 1),  # the turns' names
        (Kind.ORDER, 5, 2),  # the ids of the other run
    ]
    there, back = (
        diff_reports(*each)
        for each in (
            (report("x", a, b, c), report("y", a, c, b)),
            (report("y", a, c, b), report("x", a, b, c)),
        )
    )
    assert (there.reason_code, there.index, there.a, there.b) == ("order_mismatch", 1, "b", "c")
    assert (back.a, back.b) == ("c", "b")


# --- the ledger -------------------------------------------------------------------------------


def journal(*events):
    head, lines = ChainHead(), []
    for event, payload in events:
        line, head = next_row(head, event, dict(payload), 1.0, 0.0)
        lines.append(line + b"\n")
    return b"".join(lines)


def test_a_ledger_is_verified_with_its_order_and_its_links():
    made, ledger = runtime()
    originals = [made.take_turn(agent, text) for text in ("a", "b", "c")]
    data = journal(*ledger.rows)
    verdict = verify_chain_integrity([data])
    assert (verdict.ok, verdict.turn_count, verdict.identity) == (True, 3, "unverifiable")

    replayed, replay_ledger = runtime(mode=RuntimeMode.HEADLESS_REPLAY)
    for each in originals:
        replay_turn(each, agent, replayed)
    assert verify_chain_integrity([journal(*replay_ledger.rows)], originals=originals).ok

    rows = replay_ledger.rows
    swapped = verify_chain_integrity([journal(rows[1], rows[0], rows[2])], originals=originals)
    assert {fault.kind for fault in swapped.faults} == {"order_mismatch"}
    edited = verify_chain_integrity([data.replace(b"double", b"treble", 1)])
    assert not edited.ok
    broken = dict(rows[0][1], record_id="nonsense")
    faults = verify_chain_integrity([journal((TURN_EVENT, broken))]).faults
    assert [fault.kind for fault in faults] == ["turn_malformed"]


@pytest.mark.parametrize("data", [b"", b"[1]\n", b"\xff\n", b'{"event": "turn_recorded"}\n'])
def test_no_content_makes_the_verifier_raise(data):
    assert verify_chain_integrity([data]).turn_count <= 1


def test_scores_are_read_from_the_ledger_and_compared():
    made, ledger = runtime()
    turn = made.take_turn(agent, "a")
    for value in ("0.5", "0.25"):  # the later one counts
        made.score(turn, "tone", Decimal(value), scorer="s", scorer_version="1")
    baseline = scored_report([journal(*ledger.rows)])
    assert baseline.scores == {(turn.turn_id, "tone"): Decimal("0.25")}
    better = replace(baseline, scores={(turn.turn_id, "tone"): Decimal("0.30")})
    assert compare_scored(baseline, better).changes[0].outcome is Outcome.BETTER
    within = compare_scored(baseline, better, tolerance=Decimal("0.05"))
    assert within.changes[0].outcome is Outcome.EQUAL
    assert not compare_scored(better, baseline).ok


def test_scores_of_two_scorers_are_not_compared():
    made, ledger = runtime()
    turn = made.take_turn(agent, "a")
    made.score(turn, "tone", Decimal(1), scorer="s", scorer_version="1")
    baseline = scored_report([journal(*ledger.rows)])
    with pytest.raises(errors.InvalidInput, match="score both with one"):
        compare_scored(baseline, replace(baseline, scorer_version="2"))
    made.score(turn, "tone", Decimal(1), scorer="s", scorer_version="2")
    with pytest.raises(errors.InvalidInput, match="one version of one scorer"):
        scored_report([journal(*ledger.rows)])
    with pytest.raises(errors.InvalidInput, match="no finite"):
        made.score(turn, "tone", Decimal("NaN"), scorer="s", scorer_version="1")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "x", "9" * 200, 5, "-9E+999999"])
def test_a_score_that_is_none_is_named_by_its_line(value):
    row = {"turn_id": "t", "metric": "m", "value": value, "scorer": "s", "scorer_version": "1"}
    with pytest.raises(errors.RowMalformed, match="line 1"):
        scored_report([journal((SCORE_EVENT, row))])


def test_ids_of_a_runtime_increase_even_where_the_clock_stands_still():
    made, _ = memory_runtime(echo, CHANNELS, ids=UlidFactory(lambda: 5, lambda: 0))
    rows = [made.take_turn(no_steps, "x") for _ in range(5)]
    assert [row.record_id for row in rows] == sorted({row.record_id for row in rows})


# --- values belong to the record --------------------------------------------------------------


def changes_a_tools_result(turn):
    def node(node):
        found = node.tool("list", {}, lambda: (1, 2))
        found.append(3)
        node.write("notes", found)

    turn.step({"n": node})


def changes_the_input(turn):
    def node(node):
        turn.input.append("more")
        node.write("notes", turn.input)

    turn.step({"n": node})


def changes_what_it_read(turn):
    turn.step({"n": lambda node: node.write("notes", 1)})
    turn.read("notes").append("dirty")
    is_changed = threading.Event()

    def changes(node):
        node.read("notes").append("dirty")
        is_changed.set()

    def reads(node):
        is_changed.wait()
        node.write("last", node.read("notes"))

    turn.step({"a": changes, "b": reads})


def changes_what_it_wrote(turn):
    def node(node):
        value: list[Any] = [1]
        node.write("notes", value)
        value.append("dirty")

    turn.step({"n": node})


@pytest.mark.parametrize(
    ("run", "notes"),
    [
        (changes_a_tools_result, [[1, 2, 3]]),
        (changes_the_input, [["tea"]]),
        (changes_what_it_read, [1]),
        (changes_what_it_wrote, [[1]]),
    ],
)
def test_a_value_that_an_agent_changes_is_its_own_copy_and_a_replay_repeats_it(run, notes):
    row = taken(run, ("tea",))
    assert row.views["notes"] == notes
    assert row.views["last"] == ([1] if run is changes_what_it_read else None)
    recorded = parse_turn(json.loads(json.dumps(row.payload())))
    assert replay_turn(recorded, run, replaying()).row.content_sha256() == row.content_sha256()


def test_what_an_observer_emits_stays_as_it_was_when_it_was_emitted():
    class Collects:
        name = "collects"

        def __init__(self):
            self.seen = []

        def on_chunk(self, chunk):
            self.seen.append(chunk.index)
            return Emit("notes", self.seen)

    def asks(turn):
        turn.step({"n": lambda node: node.ask(part("tea"))})

    row = taken(asks, respond=lambda _: "x" * 70, observers=[Collects])
    assert row.views["notes"] == [[0], [0, 1], [0, 1, 2]]


def test_envelopes_of_many_calls_are_in_the_order_of_the_calls():
    class Tells:
        name = "tells"

        def on_chunk(self, chunk):
            return Emit("notes", chunk.text)

    def asks(turn):
        turn.step({"n": lambda node: [node.ask(part(f"{number}")) for number in range(12)]})

    row = taken(asks, respond=str, observers=[Tells])
    assert row.views["notes"] == [str(number) for number in range(12)]


async def is_async(node):
    node.write("notes", 1)


def is_generator(node):
    yield node.write("notes", 1)


@pytest.mark.parametrize("node", [is_async, is_generator])
def test_a_node_that_would_not_run_is_refused(node):
    with pytest.raises(errors.DeterminismError, match=r"node 'n' .* did not run"):
        taken(lambda turn: turn.step({"n": node}))


def test_a_node_works_in_its_own_thread_and_not_after_its_end():
    kept = []

    def hands_over(turn):
        def node(node):
            kept.append(node)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(node.write, "notes", 1).result()

        turn.step({"n": node})

    def keeps(turn):
        turn.step({"n": kept.append})
        kept[-1].write("notes", 1)

    for run in (hands_over, keeps):
        with pytest.raises(errors.DeterminismError, match=r"node 'n' .* thread"):
            taken(run)


def test_an_id_of_a_turn_is_taken_once_in_a_run():
    made, _ = runtime()
    made.take_turn(agent, "tea", "turn-0001")
    with pytest.raises(errors.Conflict, match="turn-0001"):
        made.take_turn(agent, "tea")


def test_a_score_that_could_not_be_read_again_is_not_written():
    made, ledger = runtime()
    turn = made.take_turn(agent, "tea")
    for value in (Decimal("1E+1001"), Decimal("1" * 200), Decimal("Infinity")):
        with pytest.raises(errors.InvalidInput, match="score"):
            made.score(turn, "m", value, scorer="s", scorer_version="1")
    assert [event for event, _ in ledger.rows] == [TURN_EVENT]


def test_a_run_without_scores_says_how_to_make_some():
    with pytest.raises(errors.InvalidInput, match=r"no turn is scored.*runtime\.score"):
        scored_report([])


def test_a_miss_in_a_recording_is_blamed_on_the_recording():
    for kind in ("used_up", "changed", "unknown"):
        assert "recording lacks" in explain(errors.ReplayMissError("miss", kind=kind))
    assert "identity-like" in explain(errors.ReplayDivergenceError("miss", kind="miss"))
