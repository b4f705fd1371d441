"""A plan as tasks with ids and dependencies; what has no clear meaning is refused here.

Rules: docs/formats/plan-and-run.md, sections 1.5 and 3.2; stricter than the peer where its graph
would silently differ from what the file says (docs/stricter-than-peer.md).
"""

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_orchestrator.plan import Plan, Stage, Step
from bernstein_orchestrator.plan_members import Place

GRAPH_REVISION: Final = "1"
# So that the graph's row stays below what one append may hold.
MAX_TASKS: Final = 5_000
MAX_EDGES: Final = 60_000


@dataclass(frozen=True, slots=True)
class Task:
    """A step with its place in the graph; `depends_on` are sorted ids."""

    task_id: str
    local_id: str
    stage: str
    step: Step
    depends_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """The tasks in plan order, and the digest of ids, roles and edges."""

    tasks: tuple[Task, ...]
    digest: str


def build_graph(plan: Plan) -> PlanGraph:
    """Check stages and titles, then resolve dependencies to task ids."""
    stages = _stages_by_name(plan)
    _check_dependencies(plan, stages)
    _check_cycles(plan, stages)
    _check_titles(plan)
    tasks = _tasks(plan, stages)
    return PlanGraph(tasks, graph_digest(tasks))


def task_id(plan_digest: str, stage_index: int, step_index: int) -> str:
    """Derive an id from plan and position alone, so that a replay has the same ones."""
    preimage = canonical_bytes([plan_digest, stage_index, step_index], Profile.PY_JSON)
    return sha256(preimage).hexdigest()[:12]


def graph_digest(tasks: tuple[Task, ...]) -> str:
    """Hash the graph as the peer does: titles never influence it."""
    nodes: list[JsonValue] = [
        {
            "depends_on": list(task.depends_on),
            "description": "",
            "metadata": [],
            "role": task.step.role,
            "task_id": task.task_id,
            "title": "",
        }
        for task in sorted(tasks, key=lambda task: task.task_id)
    ]
    preimage = canonical_bytes({"rev": GRAPH_REVISION, "nodes": nodes}, Profile.PY_JSON)
    return sha256(preimage).hexdigest()


def _stages_by_name(plan: Plan) -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    for stage in plan.stages:
        first = stages.setdefault(stage.name, stage)
        if first is not stage:
            text = f"the name is taken by the stage on line {first.line}; rename one of them"
            raise _refused(plan, stage, "duplicate_stage", text)
    return stages


def _check_dependencies(plan: Plan, stages: dict[str, Stage]) -> None:
    for stage in plan.stages:
        for name in stage.depends_on:
            if name == stage.name:
                raise _refused(plan, stage, "self_dependency", "it depends on itself; remove that")
            if name not in stages:
                text = f"it depends on {name!r}, and no stage has that name; correct or remove it"
                raise _refused(plan, stage, "unknown_stage", text)


def _check_cycles(plan: Plan, stages: dict[str, Stage]) -> None:
    sorter = TopologicalSorter({stage.name: stage.depends_on for stage in plan.stages})
    try:
        sorter.prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]  # each one is needed by the next
        text = f"its dependencies form a cycle ({' ← '.join(cycle)}); remove one of them"
        raise _refused(plan, stages[cycle[0]], "cycle", text) from None


def _check_titles(plan: Plan) -> None:
    """Refuse equal titles that something waits for: the peer would wait for the last one only."""
    needed = {name for stage in plan.stages for name in stage.depends_on}
    seen: dict[str, tuple[Stage, Step]] = {}
    for stage in plan.stages:
        for index, step in enumerate(stage.steps):
            other, first = seen.setdefault(step.title.lower(), (stage, step))
            if first is not step and (stage.name in needed or other.name in needed):
                text = (
                    f"the title {step.title!r} is also that of the step on line {first.line},"
                    " and another stage waits for one of them; give them different titles"
                )
                place = Place(plan.source, "plan", stage.name, index)
                raise place.refused("duplicate_title", text, step.line)


def _tasks(plan: Plan, stages: dict[str, Stage]) -> tuple[Task, ...]:
    task_count = sum(len(stage.steps) for stage in plan.stages)
    if task_count > MAX_TASKS:
        raise _too_large(plan, f"{task_count} tasks")
    ids = {
        stage.name: [task_id(plan.digest, number, each) for each in range(len(stage.steps))]
        for number, stage in enumerate(plan.stages)
    }
    tasks: list[Task] = []
    edge_count = 0
    for number, stage in enumerate(plan.stages):
        depends_on = tuple(sorted(_dependency_ids(stage, stages, ids)))
        for index, step in enumerate(stage.steps):
            edge_count += len(depends_on)
            local_id = f"plan-{number}-{index}"
            tasks.append(Task(ids[stage.name][index], local_id, stage.name, step, depends_on))
    if edge_count > MAX_EDGES:
        raise _too_large(plan, f"{edge_count} dependencies between tasks")
    return tuple(tasks)


def _dependency_ids(stage: Stage, stages: dict[str, Stage], ids: dict[str, list[str]]) -> set[str]:
    """Return what a stage waits for; a stage without steps passes on what it waits for itself."""
    found: set[str] = set()
    names, seen = list(stage.depends_on), set[str]()
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            found.update(ids[name])
            names += () if ids[name] else stages[name].depends_on
    return found


def _refused(plan: Plan, stage: Stage, kind: str, text: str) -> InvalidInput:
    return Place(plan.source, "plan", stage.name).refused(kind, text, stage.line)


def _too_large(plan: Plan, what: str) -> LimitExceeded:
    return LimitExceeded(
        f"{plan.source}: {what}; a plan may have {MAX_TASKS} tasks and {MAX_EDGES} dependencies,"
        " so split it or depend on a stage with one step",
        kind="too_large",
        file=plan.source,
    )
