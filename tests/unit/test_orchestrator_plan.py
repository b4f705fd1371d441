"""Plan files: what ours says beyond the peer's vectors, and what hostile YAML gets."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_orchestrator.plan import CommandAgent, Plan
from bernstein_orchestrator.plan_graph import Task, build_graph, graph_digest, task_id
from bernstein_orchestrator.plan_reader import parse_plan
from bernstein_orchestrator.yaml_document import SIZE_LIMIT, YamlMapping, parse_document

REAL_RUN = (
    Path(__file__).parents[1] / "vectors/data/real-run/sdd/runs/20261130-163229/journal.jsonl"
)


def plan_of(text: str) -> Plan:
    return parse_plan(text.encode(), "plan.yaml")


def refusal(text: str | bytes) -> InvalidInput:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(InvalidInput) as caught:
        build_graph(parse_plan(data, "plan.yaml"))
    assert "\n" not in caught.value.message
    return caught.value


def step(members: str) -> str:
    return f"stages: [{{name: a, steps: [{{title: A, {members}}}]}}]\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"\xff\xfe", "not_utf8"),
        (b"name: caf\xe9\n", "not_utf8"),
        ("", "not_a_mapping"),
        ("just text", "not_a_mapping"),
        ("- a\n- b", "not_a_mapping"),
        ("a: 1\na: 2\n", "duplicate_key"),
        ("a: [1", "yaml_syntax"),
        ("a: \x07", "yaml_syntax"),
        ('a: "\\ud800"', "yaml_syntax"),
        ("a: 2024-13-45", "yaml_syntax"),
        ("a: " + "9" * 5000, "yaml_syntax"),
        ("a: !!python/object/apply:os.system [ls]", "yaml_syntax"),
        ("a: !!binary 'x'", "yaml_syntax"),
        ("--- {}\n--- {}\n", "yaml_syntax"),
        ("? [a]\n: b\n", "yaml_syntax"),
        ("a: " + "[" * 500, "too_large"),
        ("a: " + "{a: " * 1000, "too_large"),
        ("x" * (SIZE_LIMIT + 1), "too_large"),
        ("stages: {a: 1}", "stage_not_a_mapping"),
        ("stages: text", "stage_not_a_mapping"),
        ("stages: [text]", "stage_not_a_mapping"),
        ("stages: [{steps: []}]", "stage_name_missing"),
        ("stages: [{name: a, steps: [text]}]", "step_not_a_mapping"),
        ("stages: [{name: a, depends_on: b}]", "not_a_list_of_text"),
        ("max_agents: many\nstages: [{name: a}]", "not_an_integer"),
        ("max_agents: 0\nstages: [{name: a}]", "not_an_integer"),
        ("context_files: [../x]\nstages: [{name: a}]", "path_refused"),
        (step("completion_signals: null"), "signals_not_a_list"),
        (step("completion_signals: [x]"), "signal_not_a_mapping"),
        (step("completion_signals: [{type: path_exists, path: ' '}]"), "signal_member_not_text"),
        (
            step("completion_signals: [" + "{type: path_exists, path: x}, " * 101 + "]"),
            "too_many_signals",
        ),
        (step("files: [/etc/passwd]"), "path_refused"),
        (step("files: [.git/config]"), "path_refused"),
        (step("files: [a/.SDD/x]"), "path_refused"),
        (step("phases: [dream]"), "phases"),
        (step("artifact_spec: {kind: report}"), "artifact_spec"),
        (step("agent: make"), "agent"),
        (step("agent: {command: make}"), "agent"),
        (step("agent: {command: [make, 3]}"), "agent"),
        (step("agent: {command: [make], timeout_seconds: 0}"), "agent"),
        (step("agent: {command: [make], timeout_seconds: .nan}"), "agent"),
        (step("agent: {command: [make], working_folder: ..}"), "agent"),
        (step("agent: {command: [make], environment: [BERNSTEIN_KEY]}"), "agent"),
        (step("agent: {command: [make], environment: ['A=B']}"), "agent"),
    ],
)
def test_a_bad_plan_gets_one_line_with_its_kind(text: str | bytes, kind: str) -> None:
    assert refusal(text).metadata["kind"] == kind


def test_a_billion_laughs_are_cut_short() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    assert refusal("\n".join(lines)).metadata["kind"] == "too_large"


def test_an_alias_to_itself_is_cut_short() -> None:
    assert refusal("a: &a [*a, *a]").metadata["kind"] == "too_large"


def test_aliases_and_merges_are_taken() -> None:
    plan = plan_of(
        "base: &base {role: qa, priority: 3}\n"
        "stages: [{name: a, steps: [{<<: *base, title: A, priority: 1}]}]\n"
    )
    only = plan.stages[0].steps[0]
    assert (only.role, only.priority) == ("qa", 1)


def test_lines_are_those_of_the_file() -> None:
    document = parse_document(b"\na: 1\nb:\n  c: 2\n", "x.yaml")
    assert isinstance(document, YamlMapping)
    assert document.lines == {"a": 2, "b": 3}
    inner = document["b"]
    assert isinstance(inner, YamlMapping)
    assert inner.line == 4


def test_a_refusal_names_file_line_stage_and_step() -> None:
    error = refusal("stages:\n  - name: build\n    steps:\n      - title: A\n        scope: big\n")
    assert error.message == (
        "plan.yaml:5: step 0 of stage 'build': scope must be one of small, medium, large, not 'big'"
    )


def test_a_cycle_names_its_stages() -> None:
    error = refusal(
        "stages:\n- {name: a, depends_on: [c]}\n- {name: b, depends_on: [a]}\n"
        "- {name: c, depends_on: [b]}\n"
    )
    assert error.metadata["kind"] == "cycle"
    assert all(f"{name} ← " in error.message for name in "abc")


def test_a_dependency_may_be_named_before_it_comes() -> None:
    graph = build_graph(
        plan_of(
            "stages:\n- {name: b, depends_on: [a], steps: [{title: B}]}\n"
            "- {name: a, steps: [{title: A}]}\n"
        )
    )
    second, first = graph.tasks
    assert second.depends_on == (first.task_id,)


def test_an_empty_stage_passes_its_order_on() -> None:
    graph = build_graph(
        plan_of(
            "stages:\n- {name: a, steps: [{title: A}]}\n- {name: b, depends_on: [a]}\n"
            "- {name: c, depends_on: [b], steps: [{title: C}]}\n"
        )
    )
    first, last = graph.tasks
    assert last.depends_on == (first.task_id,)


def test_equal_titles_are_fine_while_nothing_waits_for_them() -> None:
    graph = build_graph(plan_of("stages: [{name: a, steps: [{title: A}, {title: A}]}]"))
    assert len({task.task_id for task in graph.tasks}) == 2


def test_ids_depend_on_the_bytes_of_the_plan() -> None:
    first = build_graph(plan_of("stages: [{name: a, steps: [{title: A}]}]"))
    again = build_graph(plan_of("stages: [{name: a, steps: [{title: A}]}]"))
    other = build_graph(plan_of("stages: [{name: a, steps: [{title: A}]}] "))
    assert first == again
    assert first.tasks[0].task_id != other.tasks[0].task_id
    assert task_id("00", 0, 0) == sha256(b'["00",0,0]').hexdigest()[:12]


def test_the_graph_digest_is_that_of_the_peers_run() -> None:
    """The digest and the nodes of the first graph row of the recorded run of the peer."""
    rows = (json.loads(line) for line in REAL_RUN.read_text().splitlines())
    recorded = next(row for row in rows if row["event"] == "plan.graph.full")
    only = plan_of("stages: [{name: a, steps: [{title: A}]}]").stages[0].steps[0]
    tasks = tuple(
        Task(
            task_id=node["id"],
            local_id="",
            stage="",
            step=replace(only, role=node["role"], title=node["title"]),
            depends_on=tuple(node["depends_on"]),
        )
        for node in recorded["nodes"]
    )
    assert graph_digest(tasks) == recorded["digest"]


def test_a_command_agent_is_read() -> None:
    plan = plan_of(
        step("agent: {command: [make, test], working_folder: sub, timeout_seconds: 5, x: 1}")
    )
    assert plan.stages[0].steps[0].agent == CommandAgent(("make", "test"), "sub", 5.0, ())
    assert plan.unknown_members() == (("stages[0].steps[0].agent", "x"),)


def test_members_without_effect_are_warned_of() -> None:
    plan = plan_of("budget: 3\ncli: x\nstages: [{name: a, steps: [{title: A, cli: claude}]}]")
    texts = " | ".join(each.text for each in plan.warnings)
    assert "budget of a plan has no effect" in texts
    assert "not recorded yet" in texts
    assert "agent: {command: [...]}" in texts


def test_a_plan_of_too_many_tasks_is_refused() -> None:
    steps = ", ".join(["{title: x}"] * 5001)
    assert refusal(f"stages: [{{name: a, steps: [{steps}]}}]").metadata["kind"] == "too_large"


def test_no_plan_raises_anything_but_our_errors() -> None:
    for text in (
        "stages: [[[]]]",
        "stages: [{name: {}}]",
        "stages: [{name: [a], steps: 3}]",
        "1: 2",
    ):
        with pytest.raises(BernsteinError):
            build_graph(plan_of(text))
