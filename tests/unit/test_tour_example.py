"""The bundled example is what the tour says of it."""

from pathlib import Path

from bernstein_orchestrator.activation import prepare
from bernstein_orchestrator.options import RunOptions
from bernstein_tour.example import copy_example, example_folder
from bernstein_tour.shell import Shell


def test_the_example_is_three_model_steps_side_by_side_and_one_that_merges(tmp_path: Path) -> None:
    copy_example(tmp_path)
    warnings: list[str] = []
    options = RunOptions(tmp_path / "plan.yaml", tmp_path, tmp_path / ".sdd", replay_run_id="any")
    prepared = prepare(options, warnings.append)
    waiting = [len(task.depends_on) for task in prepared.graph.tasks]
    assert waiting == [0, 0, 0, 3]
    assert prepared.command_tasks == ()
    assert {each.provider for each in prepared.endpoints.values()} == {"openai"}
    assert all(task.step.signals for task in prepared.graph.tasks)
    assert warnings == []


def test_the_example_describes_itself() -> None:
    readme = (example_folder() / "README.md").read_text()
    assert "bernstein run plan.yaml" in readme


def test_what_the_user_has_set_does_not_lead_a_step_astray(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BERNSTEIN_REPLAY_RUN_ID", "somebody-elses")
    monkeypatch.setenv("BERNSTEIN_SVC_CONFIG", "/nowhere.toml")
    told: list[str] = []
    ran = Shell(tmp_path, told.append).run("--version", environ={"X": "a b"})
    assert told[0] == "$ X='a b' bernstein --version"
    assert ran.stdout.startswith("bernstein, version")
