"""Laws of the schedule: whatever fails and in whatever order, the rows re-derive."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.rederivation import rederive
from bernstein_orchestrator.events import ClaimFacts, Endpoint, Event, graph_events, round_events
from bernstein_orchestrator.plan_graph import PlanGraph, build_graph
from bernstein_orchestrator.plan_reader import parse_plan
from bernstein_orchestrator.schedule import Outcome, Round, Schedule

ENDPOINT = Endpoint("openai", "small", "openai")


@dataclass(frozen=True)
class Case:
    """A plan, the bounds, and the source of every decision."""

    graph: PlanGraph
    max_agents: int
    max_retries: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 7))
    lines = ["stages:"]
    for index in range(count):
        needed = draw(st.sets(st.integers(0, index - 1))) if index else set()
        names = ", ".join(f"s{each}" for each in sorted(needed))
        steps = ", ".join(
            f"{{title: T{index}x{each}, priority: {draw(st.integers(0, 3))}}}"
            for each in range(draw(st.integers(0, 3)))
        )
        lines.append(f"  - {{name: s{index}, depends_on: [{names}], steps: [{steps}]}}")
    graph = build_graph(parse_plan("\n".join(lines).encode(), "plan.yaml"))
    return Case(graph, draw(st.integers(1, 4)), draw(st.integers(0, 2)))


def rows_of(case: Case, rounds: list[Round]) -> list[Event]:
    seen: set[str] = set()
    events = graph_events(case.graph, "goal")
    for each in rounds:
        facts = [ClaimFacts(claim, ENDPOINT) for claim in each.claims]
        events += round_events(each, facts, seen)
    return events


def journal_of(events: list[Event]) -> list[bytes]:
    head, lines = ChainHead(), []
    for event, payload in events:
        line, head = next_row(head, event, dict(payload), 1.0, 0.0)
        lines.append(line + b"\n")
    return lines


def schedule_of(case: Case) -> Schedule:
    return Schedule(case.graph.tasks, max_agents=case.max_agents, max_retries=case.max_retries)


def play(case: Case, data: st.DataObject, steps: int) -> tuple[Schedule, list[Round]]:
    """Commit outcomes of held tasks in any order, at most so many."""
    schedule = schedule_of(case)
    rounds = [schedule.first_round()]
    while not schedule.is_over and steps:
        steps -= 1
        claim = data.draw(st.sampled_from(schedule.held))
        failed = data.draw(st.sampled_from([(), (), ("path_exists: x",)]))
        rounds.append(schedule.commit(Outcome(claim.task.task_id, failed)))
        assert len(schedule.held) <= case.max_agents
    return schedule, rounds


@given(cases(), st.data(), st.integers(0, 60))
def test_every_prefix_of_every_schedule_re_derives(
    case: Case, data: st.DataObject, steps: int
) -> None:
    schedule, rounds = play(case, data, steps)
    released = schedule.release()
    rounds += [released] if released is not None else []
    answer = rederive(journal_of(rows_of(case, rounds)), "run")
    assert (answer.ok, answer.reason_code) == (True, "")


@given(cases(), st.data())
def test_a_finished_schedule_leaves_nothing_that_could_have_been_done(
    case: Case, data: st.DataObject
) -> None:
    schedule, rounds = play(case, data, 10_000)
    done = {task.task_id for task in schedule.completed}
    for task in schedule.undone:
        assert not done.issuperset(task.depends_on)
    for task in schedule.failed:
        attempts = [c for each in rounds for c in each.claims if c.task == task]
        assert [each.attempt for each in attempts] == list(range(1, case.max_retries + 2))
    total = len(schedule.completed) + len(schedule.failed) + len(schedule.undone)
    assert total == len(case.graph.tasks)
    assert [each.tick for each in rounds] == list(range(1, len(rounds) + 1))


@given(cases(), st.data())
def test_equal_outcomes_in_equal_order_give_equal_rows(case: Case, data: st.DataObject) -> None:
    _, rounds = play(case, data, 60)
    again = schedule_of(case)
    replayed = [again.first_round()]
    replayed += [again.commit(each.ended[1]) for each in rounds if each.ended is not None]
    assert journal_of(rows_of(case, replayed)) == journal_of(rows_of(case, rounds))


@given(cases())
def test_claims_go_by_priority_then_by_plan_order(case: Case) -> None:
    schedule = schedule_of(case)
    order = {task.task_id: index for index, task in enumerate(case.graph.tasks)}
    claimed = [
        (claim.task.step.priority, order[claim.task.task_id])
        for claim in schedule.first_round().claims
    ]
    ready = sorted(
        (task.step.priority, order[task.task_id])
        for task in case.graph.tasks
        if not task.depends_on
    )
    assert claimed == ready[: case.max_agents]
