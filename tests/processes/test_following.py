"""What a user does with a run that goes on: follow it, look at it, let old ones go."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from bernstein_client.connection import Services
from bernstein_formats.thread import project as projected

pytestmark = pytest.mark.processes

PLAN = """\
stages:
  - name: a
    steps:
      - {title: One, agent: {command: ["true"]}}
"""


def command(project: Any, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *argv],
        cwd=project.folder,
        env={
            **project.environ,
            "COLUMNS": "200",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def sealed_run(services: Services, count: int = 3) -> str:
    run_id = services.journal.create_run()
    events: Sequence[tuple[str, dict[str, Any]]] = [
        ("task_claimed", {"task_id": f"t{number}", "agent_id": "a"}) for number in range(count)
    ]
    services.journal.append_many(run_id, events)
    services.journal.finish_run(run_id)
    return run_id


@pytest.mark.parametrize("variables", [{}, {"BERNSTEIN_TUI_STREAM": "1"}])
def test_a_run_is_followed_to_its_end(
    project: Any, services: Services, variables: dict[str, str]
) -> None:
    run_id = sealed_run(services)

    shown = command(project, "follow", **variables)
    from_one = command(project, "follow", run_id, "--from", "1", "--json", **variables)

    assert (shown.returncode, shown.stderr) == (0, f"following {run_id}\n")
    lines = shown.stdout.splitlines()
    assert len(lines) == 4
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert "t2" in lines[3]
    wanted = [step.data.decode() for step in projected(services.journal.read_journal(run_id), 0)]
    assert (from_one.returncode, from_one.stdout.splitlines()) == (0, wanted)


@pytest.mark.parametrize("variables", [{}, {"BERNSTEIN_TUI_STREAM": "1"}])
@pytest.mark.parametrize(
    ("argv", "reason"),
    [(["nowhere"], "RUN_NOT_FOUND"), (["latest", "--from", "9"], "INVALID_INPUT")],
)
def test_what_cannot_be_followed_is_said_in_one_line(
    project: Any,
    services: Services,
    argv: list[str],
    reason: str,
    variables: dict[str, str],
) -> None:
    sealed_run(services)

    ended = command(project, "follow", *argv, **variables)

    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith(f"[{reason}]")
    assert "Traceback" not in ended.stderr


def test_a_row_that_is_not_where_it_says_ends_following(project: Any, services: Services) -> None:
    run_id = sealed_run(services)
    journal = services.places.sdd_dir / "runs" / run_id / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"index": 1,', b'"index": 4,'))

    ended = command(project, "follow", run_id)

    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("[ROW_MALFORMED]")


def test_view_prints_an_address_that_opens_the_page(project: Any, services: Services) -> None:
    run_id = sealed_run(services)

    shown = command(project, "view", "--json")

    document = json.loads(shown.stdout)
    assert document["run_id"] == run_id
    assert document["url"].startswith("http://127.0.0.1:")
    assert f"/runs/{run_id}?token=" in document["url"]


def test_old_runs_go_by_command_and_can_be_seen_before(project: Any, services: Services) -> None:
    runs = [sealed_run(services) for _ in range(3)]

    dry = command(project, "services", "prune", "--keep", "1", "--dry-run", "--json")
    done = command(project, "services", "prune", "--json", BERNSTEIN_REPLAY_RETENTION="1")
    usage = command(project, "services", "prune")

    assert json.loads(dry.stdout)["removed"] == runs[:2]
    assert json.loads(done.stdout)["removed"] == runs[:2]
    assert [run.run_id for run in services.journal.list_runs()] == runs[2:]
    assert usage.returncode == 2


def test_a_run_that_was_left_unfinished_is_sealed_only_when_told_so(
    project: Any, services: Services
) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "run_started", {})

    unsure = command(project, "services", "seal", run_id)
    done = command(project, "services", "seal", "--abandoned", run_id, "--json")

    assert unsure.returncode == 2
    assert json.loads(done.stdout)["sealed"][0]["row_count"] == 1
    assert services.journal.verify_run(run_id).identity == "verified"


def test_the_state_after_some_rows_is_the_same_bytes_each_time(
    project: Any, services: Services
) -> None:
    run_id = sealed_run(services)
    line = ["replay", run_id, "--from-step", "2", "--as-json"]

    first, second = (command(project, *line, COLUMNS=columns).stdout for columns in ("40", "300"))

    assert first == second
    assert json.loads(first)["step_count"] == 2


def test_a_run_leaves_as_many_runs_as_are_to_stay(project: Any, services: Services) -> None:
    (project.folder / "plan.yaml").write_text(PLAN)
    old = sealed_run(services)

    ended = command(project, "run", "plan.yaml", "--json", BERNSTEIN_REPLAY_RETENTION="1")

    run_id = json.loads(ended.stdout)["run_id"]
    assert [run.run_id for run in services.journal.list_runs()] == [run_id]
    assert f"removed the run {old}" in ended.stderr
