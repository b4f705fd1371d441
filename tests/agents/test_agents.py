"""Coding agents as their users run them: the lines of docs/agents, against a scripted provider.

Two of them are tried in `make test`; all of them in `make test-agents`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agent_script import editing
from tests.installed import Package
from tests.scripted_provider import ProviderServer

pytestmark = [pytest.mark.agents, pytest.mark.processes]
DOCS = Path(__file__).parents[2] / "docs" / "agents"
QUICK = ("claude-code", "codex")
RUN_SECONDS = 180
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
TASK_FILE = "greeting.txt"
SETTINGS = {"claude-code": ".claude/settings.json", "codex": ".codex/config.toml"}


@dataclass(frozen=True)
class Agent:
    """What a page of docs/agents is about."""

    page: str
    package: Package


AGENTS = (
    Agent("claude-code", Package("@anthropic-ai/claude-code@2.1.332")),
    Agent("codex", Package("@openai/codex@0.171.0")),
    Agent("gemini-cli", Package("@google/gemini-cli@0.61.0")),
    Agent("qwen-code", Package("@qwen-code/qwen-code@0.24.4")),
    Agent("opencode", Package("opencode-ai@1.18.33")),
    Agent("aider", Package("aider-chat==0.86.2")),
)


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.page)
def agent(request: Any) -> Agent:
    chosen: Agent = request.param
    if os.environ.get("BERNSTEIN_TEST_AGENTS") != "all" and chosen.page not in QUICK:
        pytest.skip(f"{chosen.page} is tested in `make test-agents`")
    chosen.package.install()
    return chosen


def lines_of(agent: Agent) -> list[str]:
    (block,) = BLOCK.findall((DOCS / f"{agent.page}.md").read_text())
    return [line.strip() for line in block.splitlines() if line.strip()]


class Desk:
    """A user's terminal in a project under git."""

    def __init__(self, project: Any, agent: Agent) -> None:
        self.project = project
        self.programs = f"{agent.package.programs}:{Path(sys.executable).parent}"
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


@pytest.mark.parametrize("agent", AGENTS[:2], ids=QUICK, indirect=True)
def test_an_agent_that_gets_none_of_our_variables_goes_through_the_lane_of_its_settings_file(
    agent: Agent, project: Any
) -> None:
    desk = Desk(project, agent)
    own = Path(project.environ["HOME"], SETTINGS[agent.page])
    command = lines_of(agent)[-1].removeprefix("bernstein replay latest -- ")
    client = command.split()[0]
    # A peer that filters variables, and has no key to pass on.
    bare = f'env -i PATH="$PATH" HOME="$HOME" {command}'
    opening = f"bernstein agent env {client} --peer"
    ending = "bernstein agent end latest"
    with ProviderServer(editing(desk.file, "world", "everybody"), os.urandom(4).hex()) as provider:
        addresses = {"ANTHROPIC_BASE_URL": provider.url, "OPENAI_BASE_URL": f"{provider.url}/v1"}
        desk.run([opening], {**addresses, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"})
        desk.run([bare], {})
        told = desk.run([ending], {})
    asked = len(provider.asked)
    edited = desk.file.read_text()
    desk.file.write_text("hello world\n")
    run_id = told.split("run ")[-1].split()[0]
    desk.run([f"{opening} --replay {run_id}", bare], {})
    replayed = desk.run([f"{ending} --require-complete"], {})

    assert edited == desk.file.read_text() == "hello everybody\n"
    assert f"recorded {asked}, cut 0" in told
    assert f"hits {asked}, misses 0, left 0, cut 0" in replayed
    assert "reached the recorded head" in replayed
    assert not own.exists()


def test_each_agent_has_its_page_and_each_page_is_tested() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == {each.page for each in AGENTS}
    for each in AGENTS:
        name, version = re.split(r"==|(?<=.)@", each.package.spec)
        page = (DOCS / f"{each.page}.md").read_text()
        assert f"`{name}` {version}" in page
        assert len(lines_of(each)) in (3, 4)
