"""The peer's plan files: the same plans load, with the same tasks, or fail for the same reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.plan_graph import build_graph
from bernstein_orchestrator.plan_reader import parse_plan

DATA = Path(__file__).parent / "data" / "plan"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
LOADED = sorted(name for name, each in EXPECTED.items() if each["load"] == "ok")
REFUSED = sorted(name for name, each in EXPECTED.items() if each["load"] != "ok")

# The peer runs these with another graph than the file describes; see docs/stricter-than-peer.md.
STRICTER = {
    "cycle.yaml": "cycle",
    "duplicate_stage.yaml": "duplicate_stage",
    "duplicate_titles.yaml": "duplicate_title",
    "self_dep.yaml": "self_dependency",
    "unknown_stage.yaml": "unknown_stage",
}


def read(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_every_plan_of_the_folder_has_an_expectation() -> None:
    assert set(EXPECTED) == {path.name for path in DATA.glob("*.yaml")}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_the_peer_refuses_is_refused_for_the_same_reason(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_plan(read(name), name)
    expected = EXPECTED[name]
    place = expected.get("load_error_at", {})
    found = caught.value.metadata
    assert expected["load_error_kind"] == found["kind"]
    assert {key: str(value) for key, value in place.items()} == {
        key: found[key] for key in ("stage", "step") if key in found
    }
    assert caught.value.message.startswith(f"{name}:")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", LOADED)
def test_a_plan_that_the_peer_loads_is_read_alike(name: str) -> None:
    plan = parse_plan(read(name), name)
    config = EXPECTED[name]["config"]
    assert config == {
        "budget": plan.budget,
        "cli": plan.cli,
        "constraints": list(plan.constraints),
        "context_files": list(plan.context_files),
        "description": plan.description,
        "max_agents": plan.max_agents,
        "name": plan.name,
    }
    steps = [
        {
            "completion_signals": [[each.type.value, each.value] for each in step.signals],
            "complexity": step.complexity.value,
            "description": step.description,
            "estimated_minutes": step.estimated_minutes,
            "files": list(step.files),
            "mode": step.mode,
            "priority": step.priority,
            "role": step.role,
            "scope": step.scope.value,
            "title": step.title,
        }
        for stage in plan.stages
        for step in stage.steps
    ]
    compared = steps[0].keys()
    assert steps == [{key: task[key] for key in compared} for task in EXPECTED[name]["tasks"]]
    unknown = [tuple(each) for each in EXPECTED[name]["unknown_members"]]
    assert sorted(unknown) == sorted(plan.unknown_members())


@pytest.mark.parametrize("name", [name for name in LOADED if name not in STRICTER])
def test_tasks_depend_on_each_other_as_in_the_peer(name: str) -> None:
    graph = build_graph(parse_plan(read(name), name))
    local_ids = {task.task_id: task.local_id for task in graph.tasks}
    found = {
        task.local_id: sorted(local_ids[each] for each in task.depends_on) for task in graph.tasks
    }
    assert found == {
        task["local_id"]: sorted(task["depends_on_local_ids"]) for task in EXPECTED[name]["tasks"]
    }


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_a_plan_with_another_meaning_than_its_text_is_refused(name: str) -> None:
    plan = parse_plan(read(name), name)
    with pytest.raises(InvalidInput) as caught:
        build_graph(plan)
    assert caught.value.metadata["kind"] == STRICTER[name]
    assert caught.value.message.startswith(f"{name}:")
    assert "stage" in caught.value.metadata
