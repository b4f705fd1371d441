"""What the peer's own writers write is followed while they do, and arrives byte for byte."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Project
from tests.follower import following, kill_journal

from bernstein_formats import paths

pytestmark = [pytest.mark.peer, pytest.mark.processes]
RUN_ID = "20261201-120000"
AGENT = "backend-1"
KEY = "11" * 32


class Written:
    """A run and a session of the peer, by the peer."""

    def __init__(self, peer: Any, sdd: Path) -> None:
        self.peer, self.sdd = peer, sdd
        self.rows = self.steps = 0

    def go_on(self, *events: str, is_last: bool = False) -> None:
        self.peer.ask(
            {
                "record": RUN_ID,
                "sdd_dir": str(self.sdd),
                "profile": "py-json-v1",
                "events": [(event, {"task_id": "t\u00e9", "n": self.rows}) for event in events],
                "hmac_key": KEY if is_last else None,
                "resumes": self.rows > 0,
            }
        )
        self.rows += len(events)

    def step(self) -> None:
        blob = f"screenshot {self.steps}".encode()
        digest = sha256(blob).hexdigest()
        path = self.sdd / paths.blob_path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
        step = {"input_hash": digest, "model": "mock", "prompt": "p", "tool_call": None,
                "tool_result": {"n": self.steps}, "blob_refs": [digest]}  # fmt: skip
        folder = self.sdd / paths.steps_folder(AGENT)
        self.peer.ask({"steps": [step], "folder": str(folder)})
        self.steps += 1

    def files(self) -> dict[str, bytes]:
        names = (
            paths.journal_path(RUN_ID),
            paths.spine_path(RUN_ID),
            paths.steps_path(AGENT),
        )
        blobs = (f"cas/{path.parent.name}/{path.name}" for path in self.sdd.glob("cas/*/*"))
        return {name: (self.sdd / name).read_bytes() for name in (*names, *blobs)}


def test_a_run_of_the_peer_is_followed_while_it_is_written(
    peer: Any, project: Project, tmp_path: Path
) -> None:
    written = Written(peer, tmp_path / "theirs" / ".sdd")
    written.go_on("run_started")
    with following(project, tmp_path / "theirs") as follower:
        follower.until(run_id=RUN_ID, status="new")
        written.go_on("tick_start", "task_claimed")
        written.step()
        follower.until(agent_id=AGENT, steps=1)
        kill_journal(project)
        written.go_on("task_completed")
        written.step()
        follower.until(run_id=RUN_ID, rows=4)
        follower.kill()
        written.go_on("run_completed", "run_quiescence", is_last=True)
        written.step()
        follower.start_again()
        sealed = follower.until(run_id=RUN_ID, status="sealed")
        assert (sealed["rows"], sealed["spine_rows"]) == (6, 1)

    for name, content in written.files().items():
        assert (project.sdd / name).read_bytes() == content
    assert (project.sdd / paths.steps_path(AGENT)).stat().st_mode & 0o777 == 0o600
    with project.services() as services:
        assert services.journal.verify_run(RUN_ID).identity == "verified"


def test_a_repair_by_the_peer_of_a_torn_end_is_followed(
    peer: Any, project: Project, tmp_path: Path
) -> None:
    written = Written(peer, tmp_path / "theirs" / ".sdd")
    written.go_on("run_started", "tick_start")
    journal = written.sdd / paths.journal_path(RUN_ID)
    with journal.open("ab") as file:
        file.write(b'{"ts": 1796056488.8, "ela\n')
    with following(project, tmp_path / "theirs") as follower:
        told = follower.until(run_id=RUN_ID, status="new")
        assert (told["rows"], told["torn_bytes"]) == (2, 26)
        repaired = peer.run("replay", "repair", RUN_ID, cwd=tmp_path / "theirs")
        assert repaired.exit == 0
        written.go_on("run_completed")
        follower.until(run_id=RUN_ID, rows=3, torn_bytes=0)
    assert (project.sdd / paths.journal_path(RUN_ID)).read_bytes() == journal.read_bytes()
