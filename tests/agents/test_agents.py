"""Coding agents as their users run them: the lines of docs/agents, against a scripted provider.

The agents are installed by the test, pinned, into a cache folder of the user's. Two of them are
tried in `make test`; all of them in `make test-agents`.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agent_script import editing
from tests.scripted_provider import ProviderServer

pytestmark = [pytest.mark.agents, pytest.mark.processes]
DOCS = Path(__file__).parents[2] / "docs" / "agents"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bernstein-test-agents"
QUICK = ("claude-code", "codex")
INSTALL_SECONDS = 600
RUN_SECONDS = 180
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
TASK_FILE = "greeting.txt"


@dataclass(frozen=True)
class Agent:
    """What a page of docs/agents is about; `package` is npm's, or with == the Python index's."""

    page: str
    package: str

    @property
    def folder(self) -> Path:
        return CACHE / re.sub(r"[^\w.]+", "-", self.package).strip("-")

    @property
    def programs(self) -> Path:
        return self.folder / ("bin" if "==" in self.package else "node_modules/.bin")

    def commands(self) -> list[list[str]]:
        """How it is installed."""
        if "==" in self.package:
            return [
                ["uv", "venv", "--quiet", "--python", "3.11", str(self.folder)],
                ["uv", "pip", "install", "--quiet", "--python", str(self.folder), self.package],
            ]
        options = ("--no-audit", "--no-fund", "--loglevel=error")
        return [["npm", "install", *options, "--prefix", str(self.folder), self.package]]


AGENTS = (
    Agent("claude-code", "@anthropic-ai/claude-code@2.1.332"),
    Agent("codex", "@openai/codex@0.171.0"),
    Agent("gemini-cli", "@google/gemini-cli@0.61.0"),
    Agent("qwen-code", "@qwen-code/qwen-code@0.24.4"),
    Agent("opencode", "opencode-ai@1.18.33"),
    Agent("aider", "aider-chat==0.86.2"),
)


def install(agent: Agent) -> None:
    """Once, whoever else wants it; skips the test by name where the registry is out of reach."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with Path(f"{agent.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = agent.folder / "installed"
        if done.exists():
            return
        for command in agent.commands():
            if shutil.which(command[0]) is None:
                pytest.skip(f"{agent.page} is not tested: there is no {command[0]}")
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
            if ran.returncode:
                last = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
                pytest.skip(f"{agent.page} is not tested: {command[0]} cannot install it: {last}")
        done.touch()


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.page)
def agent(request: Any) -> Agent:
    chosen: Agent = request.param
    if os.environ.get("BERNSTEIN_TEST_AGENTS") != "all" and chosen.page not in QUICK:
        pytest.skip(f"{chosen.page} is tested in `make test-agents`")
    install(chosen)
    return chosen


def lines_of(agent: Agent) -> list[str]:
    (block,) = BLOCK.findall((DOCS / f"{agent.page}.md").read_text())
    return [line.strip() for line in block.splitlines() if line.strip()]


class Desk:
    """A user's terminal in a project under git."""

    def __init__(self, project: Any, agent: Agent) -> None:
        self.project = project
        self.programs = f"{agent.programs}:{Path(sys.executable).parent}"
        self.file = project.folder / TASK_FILE
        self.file.write_text("hello world\n")
        (project.folder / ".gitignore").write_text(".sdd\n.aider*\n")
        dated = {
            **{f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_NAME": "n" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "n@example.org" for who in ("AUTHOR", "COMMITTER")},
        }
        self.environ = {**project.environ, **dated}
        self.run(["git init -q", "git add .", "git commit -q -m Start"], {})

    def run(self, lines: list[str], environ: Mapping[str, str]) -> str:
        """What was said on stderr."""
        done = subprocess.run(
            ["bash", "-euc", "\n".join(lines)],
            cwd=self.project.folder,
            env={
                **self.environ,
                **environ,
                "PATH": f"{self.programs}:{self.project.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (
            f"{done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
        )
        return done.stderr


def test_the_lines_of_its_page_record_an_agent_and_replay_it_without_the_provider(
    agent: Agent, project: Any, tmp_path: Path
) -> None:
    desk = Desk(project, agent)
    *recording, replaying = lines_of(agent)
    with ProviderServer(editing(desk.file, "world", "everybody"), os.urandom(4).hex()) as provider:
        addresses = {
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "GOOGLE_GEMINI_BASE_URL": provider.url,
        }
        desk.run(recording, addresses)
    asked = len(provider.asked)
    edited = desk.file.read_text()
    desk.file.write_text("hello later\n")
    kept = f"bernstein replay latest --work-tree {tmp_path / 'replayed'} --"
    told = desk.run([replaying.replace("bernstein replay latest --", kept)], {})

    assert edited == "hello everybody\n"
    # It worked on the files as they were recorded, and not here.
    assert (tmp_path / "replayed" / TASK_FILE).read_text() == edited
    assert desk.file.read_text() == "hello later\n"
    assert f"hits {asked}, misses 0, left 0, cut 0" in told
    assert "reached the recorded head" in told
    keys = [headers.get("Authorization", "") for _, headers, _ in provider.asked]
    assert not any("recorded-by-bernstein" in key for key in keys)


def test_each_agent_has_its_page_and_each_page_is_tested() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == {each.page for each in AGENTS}
    for each in AGENTS:
        name, version = re.split(r"==|(?<=.)@", each.package)
        page = (DOCS / f"{each.page}.md").read_text()
        assert f"`{name}` {version}" in page
        assert len(lines_of(each)) in (3, 4)
