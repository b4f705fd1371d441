"""`bernstein tour` from end to end: it holds each step to what it says, and leaves nothing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes


def tour(project: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", "tour", *arguments],
        cwd=project.folder,
        env={**project.environ, "TMPDIR": project.environ["TMPDIR"]},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_the_tour_shows_every_command_and_leaves_nothing_behind(
    project: Any, tmp_path: Path
) -> None:
    done = tour(project)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = [line for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert [line.partition("bernstein ")[2].split(" ")[0] for line in commands] == [
        "services",
        "keys",
        "run",
        "run",
        "replay",
        "replay",
        "verify",
        "verify",
        "verify",
        "replay",
        "verify",
        "services",
    ]
    assert commands[2].startswith("$ OPENAI_BASE_URL=http://127.0.0.1:")
    assert "ok: it says 'misses=0'" in done.stdout
    assert "Every step did what it says." in done.stdout
    folder = Path(done.stdout.splitlines()[0].rpartition(" ")[2])
    assert folder.is_absolute()
    assert not folder.exists()
    left = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert left == []


def test_a_kept_tour_can_be_looked_at(project: Any, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert tour(project, "--keep", str(kept)).returncode == 0
    assert (kept / "edited-journal.jsonl").exists()
    assert len(list((kept / ".sdd" / "runs").iterdir())) == 2
    again = tour(project, "--keep", str(kept))
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_a_step_that_does_not_do_what_it_says_stops_the_tour(project: Any, tmp_path: Path) -> None:
    """Here the signer finds no place for its key, so that nothing can be sealed."""
    kept = tmp_path / "kept"
    (tmp_path / "home" / ".local").write_text("not a folder")
    done = tour(project, "--keep", str(kept))
    assert done.returncode == 1
    assert "The tour stops here" in done.stdout
    assert "Every step" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
