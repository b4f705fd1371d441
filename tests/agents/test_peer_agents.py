"""Agents that the peer's own orchestrator starts, which passes on none of our variables.

It mints ids of task, session and folder, and tells them to the agent: what is replayed is therefore
the agent's own command in its folder, and not the orchestrator.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.agent_script import editing
from tests.agents.test_agents import AGENTS, QUICK, SETTINGS, TASK_FILE, Agent, Desk
from tests.scripted_provider import Asked, ProviderServer, Say

pytestmark = [
    pytest.mark.agents,
    pytest.mark.processes,
    pytest.mark.peer,
    pytest.mark.skipif(
        os.environ.get("BERNSTEIN_TEST_AGENTS") != "all",
        reason="the peer takes most of a minute to start an agent: `make test-agents`",
    ),
]
ENVIRONMENT = Path(__file__).parents[1] / "interop" / "peer_environment.py"
CLIENTS = {"claude-code": "claude", "codex": "codex"}
AGENT_SECONDS = 180
TICK_SECONDS = 0.2
# Stands before the agent on PATH and notes how the peer starts it. The peer tries again when it is
# not content with what came: that is not recorded. Claude Code wants IS_SANDBOX where root tests.
NOTING = """#!/bin/bash
PATH=${{PATH#*:}}
case "$1" in exec | --model) ;; *) exec {client} "$@" ;; esac
mkdir {notes}/started 2> /dev/null || exit 1
export IS_SANDBOX=1
printf %s "$PWD" > {notes}/folder
cp -a . {notes}/before
printf '%s\\0' "$@" > {notes}/arguments
env -0 > {notes}/environ
{client} "$@"
cp {file} {notes}/after
touch {notes}/ended
"""


class Notes:
    """How the peer started the agent."""

    def __init__(self, folder: Path, client: str) -> None:
        self.folder = folder
        self.client = client
        self.programs = folder / "programs"
        self.programs.mkdir(parents=True)
        program = self.programs / client
        program.write_text(NOTING.format(client=client, notes=folder, file=TASK_FILE))
        program.chmod(0o755)

    def script(self, asked: Asked) -> Say:
        """The model's side, which is told the agent's folder by nobody."""
        return editing(self.worktree / TASK_FILE, "world", "everybody")(asked)

    @property
    def worktree(self) -> Path:
        return Path((self.folder / "folder").read_text())

    @property
    def is_ended(self) -> bool:
        return (self.folder / "ended").exists()

    def texts(self, name: str) -> list[str]:
        return (self.folder / name).read_text().split("\0")[:-1]

    def again(self, path: str) -> None:
        """The agent's own command once more: its folder, variables and files as they were."""
        shutil.copytree(self.folder / "before", self.worktree, dirs_exist_ok=True, symlinks=True)
        environ = dict(each.split("=", 1) for each in self.texts("environ"))
        subprocess.run(
            [self.client, *self.texts("arguments")],
            cwd=self.worktree,
            env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=AGENT_SECONDS,
            check=True,
        )


@pytest.fixture(scope="session")
def peer() -> str:
    found = subprocess.run(
        [sys.executable, str(ENVIRONMENT)], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return f"{found.stdout.strip()}/bin/bernstein"


@contextmanager
def orchestrating(
    peer: str, client: str, folder: Path, environ: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """The peer with one agent, until its end or ours."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = ["--cli", client, "--worker", "backend", "--port", port, "--auto-approve", "--quiet"]
    with Path(folder.parent, "peer.log").open("wb") as told:
        running = subprocess.Popen(
            [peer, "run", *options],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait()
        subprocess.run(
            [peer, "stop", "--force"], cwd=folder, env=environ, capture_output=True, check=True
        )


@pytest.mark.parametrize("agent", AGENTS[:2], ids=QUICK)
def test_an_agent_of_the_peers_orchestrator_is_recorded_and_its_command_replays(
    agent: Agent, project: Any, peer: str, tmp_path: Path
) -> None:
    agent.package.install()
    client = CLIENTS[agent.page]
    own = Path(project.environ["HOME"], SETTINGS[agent.page])
    seed = f"goal: Make the greeting friendlier\ncli: {client}\ninternal_llm_provider: none\n"
    (project.folder / "bernstein.yaml").write_text(seed)
    desk = Desk(project, agent)
    desk.run(["git checkout -q -b work"], {})  # it refuses to work on the default branch
    notes = Notes(tmp_path / "notes", client)
    path = f"{desk.programs}:{project.environ['PATH']}"
    # It starts no agent for a user without a key; the agent's settings put a dummy in its place.
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    environ = {**desk.environ, **keys, "PATH": f"{notes.programs}:{path}"}

    with ProviderServer(notes.script, os.urandom(4).hex()) as provider:
        addresses = {"ANTHROPIC_BASE_URL": provider.url, "OPENAI_BASE_URL": f"{provider.url}/v1"}
        desk.run([f"bernstein agent env {client} --peer"], {**addresses, **keys})
        with orchestrating(peer, client, project.folder, environ) as running:
            until = time.monotonic() + AGENT_SECONDS
            while not notes.is_ended and running.poll() is None and time.monotonic() < until:
                time.sleep(TICK_SECONDS)
        assert notes.is_ended, (tmp_path / "peer.log").read_text()
        # `latest` is the lane's run, although the orchestrator began one of its own since.
        told = desk.run(["bernstein agent end latest"], {})
    asked = len(provider.asked)
    run_id = told.split("run ")[-1].split()[0]
    desk.run([f"bernstein agent env {client} --peer --replay {run_id}"], {})
    notes.again(path)
    replayed = desk.run(["bernstein agent end latest --require-complete"], {})

    assert asked >= 3
    assert f"recorded {asked}, cut 0" in told
    assert f"hits {asked}, misses 0, left 0, cut 0" in replayed
    assert "reached the recorded head" in replayed
    files = (notes.folder / "after", notes.worktree / TASK_FILE)
    assert [file.read_text() for file in files] == ["hello everybody\n"] * 2
    assert not own.exists()
    keys_sent = json.dumps([headers for _, headers, _ in provider.asked])
    assert "recorded-by-bernstein" not in keys_sent
