"""Recorded agents again: in their recorded surroundings, locked in, one by one or as a gate."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bernstein_agent.sandbox import is_possible
from bernstein_tour.model_server import ModelServer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not is_possible(), reason="no way to lock an agent in here"),
]
AGENT = """
import json, os, pathlib, subprocess, sys, urllib.request
prompt = " ".join([sys.argv[1], os.getcwd(), os.environ["HOME"], pathlib.Path("notes").read_text()])
body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(), {"Content-Type": "application/json"})
answer = json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"]
pathlib.Path("notes").write_text(answer)
pathlib.Path(os.environ["HOME"], "memory").write_text(answer)
try:
    urllib.request.urlopen(sys.argv[2], timeout=5).read()
    print("pushed")
except OSError:
    print("nothing there")
"""

# Asks one by one; or the first, and the others while it waits. Tells how many were answered then.
ASKING = """
import json, os, sys, threading, urllib.request
how, *texts = sys.argv[1:]
answered = []
def ask(text):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).read()
    answered.append(text)
threads = [threading.Thread(target=ask, args=[text]) for text in texts]
threads[0].start()
threads[0].join(None if how == "one-by-one" else 0.5)
print(len(answered))
for thread in threads[1:]:
    thread.start()
    if how == "one-by-one":
        thread.join()
for thread in threads:
    thread.join()
"""


class Desk:
    """A terminal in a project with an agent that tells of its folder, edits it, and pushes."""

    def __init__(self, project: Any, model: ModelServer) -> None:
        self.folder: Path = project.folder
        self.runs: Path = project.sdd / "runs"
        self.environ = {**project.environ, "OPENAI_BASE_URL": model.base_url}
        self.elsewhere = f"{model.base_url}/models"
        (self.folder / "agent.py").write_text(AGENT)
        (self.folder / "notes").write_text("first")

    def run(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "bernstein_cli", *arguments],
            cwd=folder or self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert 'File "/' not in done.stdout
        return done

    def command(self, text: str = "hi") -> tuple[str, ...]:
        return ("--", sys.executable, "agent.py", text, self.elsewhere)

    def record(self, text: str = "hi") -> str:
        done = self.run("record", "--json", *self.command(text))
        assert done.returncode == 0, done.stderr
        assert "pushed" in done.stderr
        return str(json.loads(done.stdout)["run_id"])


@pytest.fixture
def desk(project: Any) -> Iterator[Desk]:
    with ModelServer() as model:
        yield Desk(project, model)


def test_a_replay_has_the_recorded_files_and_no_way_out(desk: Desk, tmp_path: Path) -> None:
    run_id = desk.record()
    written = (desk.folder / "notes").read_text()
    (desk.folder / "notes").write_text("later")
    memory = Path(desk.environ["HOME"]) / "memory"
    memory.write_text("later")
    tree = tmp_path / "kept"
    replayed = desk.run("replay", run_id, "--work-tree", str(tree), *desk.command())
    unsafe = desk.run("replay", run_id, "--unsafe-tools", *desk.command())

    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout == "nothing there\n"
    assert "reached the recorded head" in replayed.stderr
    assert (tree / "notes").read_text() == written
    # Here nothing changed, before tools were let loose: then files and network are these.
    assert memory.read_text() == "later"
    assert "REPLAY_MISS" in unsafe.stderr
    assert unsafe.returncode == 10


def test_no_key_of_its_user_is_in_an_agents_sight(desk: Desk, tmp_path: Path) -> None:
    state = Path(desk.environ["HOME"]) / ".local" / "state" / "bernstein"
    state.mkdir(parents=True, exist_ok=True)
    keys = [state / "audit.key", *(Path(desk.folder, each) for each in ("receipt", "openai"))]
    for key in keys:
        key.write_text("key material")
        key.chmod(0o600)
    desk.environ |= {
        "BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH": str(keys[1]),
        "BERNSTEIN_SVC_RECORDER_OPENAI_KEY_FILE": str(keys[2]),
        "BERNSTEIN_RUN_RECEIPT_SIGNING_ENV_VAR": "MY_KEY",
        "MY_KEY": "key material",
    }
    command = ("--", "sh", "-c", 'cat "$@"; env', "sh", *map(str, keys))
    recorded = desk.run("record", *command)
    replayed = desk.run("replay", "latest", *command)

    assert (recorded.returncode, replayed.returncode) == (0, 0), replayed.stderr
    assert recorded.stdout.count("key material") == len(keys)
    assert "key material" not in replayed.stdout


def test_a_replay_elsewhere_sees_the_recorded_folder_and_home(desk: Desk, tmp_path: Path) -> None:
    run_id = desk.record()
    moved = tmp_path / "other" / "project"
    shutil.copytree(desk.folder, moved, ignore=shutil.ignore_patterns("svc"))
    home = tmp_path / "other-home"
    home.mkdir()
    shutil.rmtree(desk.folder)
    desk.environ["HOME"] = str(home)
    replayed = desk.run("replay", run_id, *desk.command(), folder=moved)
    stopped = desk.run("services", "stop", folder=moved)

    assert (replayed.returncode, stopped.returncode) == (0, 0), replayed.stderr
    assert "hits 1, misses 0" in replayed.stderr
    assert list(home.iterdir()) == [home / ".local"]
    desk.folder.joinpath(".sdd").mkdir(parents=True)


def test_surroundings_that_a_request_shows_are_checked_before_the_first_call(
    desk: Desk, tmp_path: Path
) -> None:
    another = tmp_path / "another-machine"
    another.mkdir()
    (another / "sitecustomize.py").write_text(
        "import platform; platform.release = lambda: '2.6.18'"
    )
    desk.environ["PYTHONPATH"] = str(another)
    shown, hidden = desk.record("the kernel is 2.6.18"), desk.record("which kernel?")
    del desk.environ["PYTHONPATH"]
    before = set(desk.runs.iterdir())
    refused = desk.run("replay", shown, "--json", *desk.command("the kernel is 2.6.18"))
    told = desk.run("replay", hidden, *desk.command("which kernel?"))

    assert refused.returncode == 1
    said = json.loads(refused.stdout)
    assert (said["error"], said["differences"]) == ("ENVIRONMENT_CHANGED", "kernel")
    assert "2.6.18" in said["detail"]
    assert (told.returncode, "in no request: kernel" in told.stderr) == (0, True)
    # The refused one left no run behind.
    assert len(set(desk.runs.iterdir()) - before) == 1


def test_a_set_of_recorded_agents_is_a_gate(desk: Desk) -> None:
    clean = desk.record()
    (desk.folder / "notes").write_text("second")
    other = desk.record("what is new?")
    secret = desk.record("sk-abcdefghijklmnop")
    before = {path: path.stat().st_mtime_ns for path in desk.runs.rglob("*")}
    first = desk.run("replay", "--all", ".sdd", "--json")
    shutil.rmtree(desk.runs / secret)
    second = desk.run("replay", "--all", str(desk.runs))
    after = {path: path.stat().st_mtime_ns for path in before if path.exists()}

    assert first.returncode == 12
    found = {each["recorded_run_id"]: each for each in json.loads(first.stdout)["runs"]}
    verdicts = {name: each["verdict"] for name, each in found.items()}
    assert verdicts == {clean: "clean", other: "clean", secret: "RECORDING_MISSING"}
    assert found[clean]["head"] == found[clean]["recorded_head"]
    assert "sk-abc" not in first.stdout + first.stderr
    assert (second.returncode, second.stdout.count("clean")) == (0, 2), second.stderr
    assert "nothing there" in second.stderr
    assert after.items() <= before.items()
    assert desk.run("replay", "--all", ".", "run").returncode == 2


def test_a_recording_that_is_gone_does_not_pass_the_gate(desk: Desk) -> None:
    clean, lost = desk.record(), desk.record("what is new?")
    (desk.runs / lost / "llm_http.jsonl").unlink()

    gate = desk.run("replay", "--all", ".sdd", "--json")

    found = json.loads(gate.stdout)["runs"]
    verdicts = {each["recorded_run_id"]: each["verdict"] for each in found}
    assert gate.returncode == 12
    assert verdicts[lost] == "RECORDING_MISSING"
    assert clean in verdicts


def test_answers_come_in_the_recorded_order_where_that_is_wanted(desk: Desk) -> None:
    def asking(*words: str) -> tuple[str, ...]:
        return ("--", sys.executable, "-c", ASKING, *words)

    texts = [f"question {letter}" for letter in "abcd"]
    recorded = desk.run("record", *asking("one-by-one", *texts))
    kept = desk.run("replay", "latest", "--keep-order", *asking("crossed", *reversed(texts)))

    assert (recorded.returncode, kept.returncode) == (0, 0), kept.stderr
    assert "hits 4, misses 0, left 0" in kept.stderr
    assert "out of turn" not in kept.stderr
    assert (recorded.stdout, kept.stdout) == ("1\n", "0\n")


def test_a_badly_named_run_is_named_and_the_others_are_replayed(desk: Desk) -> None:
    clean, odd = desk.record(), desk.record("what is new?")
    (desk.runs / odd).rename(desk.runs / "my favourite run")

    gate = desk.run("replay", "--all", ".sdd", "--json")

    found = {each["recorded_run_id"]: each for each in json.loads(gate.stdout)["runs"]}
    assert gate.returncode == 1
    assert found[clean]["verdict"] == "clean"
    assert found["my favourite run"]["verdict"] == "INVALID_INPUT"


def test_a_replay_of_a_replay_is_refused_with_the_run_to_replay(desk: Desk) -> None:
    run_id = desk.record()
    desk.run("replay", run_id, *desk.command())

    refused = desk.run("replay", "latest", *desk.command())
    lane = desk.run("agent", "env", "openai", "--replay", "latest")

    for each in (refused, lane):
        assert (each.returncode, each.stderr.count("[INVALID_INPUT]")) == (1, 1)
        assert f"is itself a replay, of run {run_id}" in each.stderr


def test_a_recording_that_was_killed_is_named_and_answers_what_it_has(desk: Desk) -> None:
    agent = ("sh", "-c", '"$@"; echo asked; read -r _', "sh", *desk.command()[1:])
    running = subprocess.Popen(
        [sys.executable, "-m", "bernstein_cli", "record", "--", *agent],
        cwd=desk.folder,
        env=desk.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    with running.stdin, running.stdout:
        assert b"asked\n" in iter(running.stdout.readline, b"")
        running.kill()
        running.wait()
    replayed = desk.run("replay", "latest", *desk.command())

    assert "is not sealed: its recording was broken off" in replayed.stderr
    assert "hits 1, misses 0" in replayed.stderr
    assert "reached another head" in replayed.stderr


def test_an_agent_that_was_killed_is_recorded_to_its_end(desk: Desk) -> None:
    killed = ("--", "sh", "-c", '"$@"; kill -9 $$', "sh", *desk.command()[1:])
    recorded = desk.run("record", "--json", *killed)
    replayed = desk.run("replay", "latest", "--json", *killed)

    found = [json.loads(each.stdout) for each in (recorded, replayed)]
    assert [each["agent_exit_code"] for each in found] == [137, 137]
    assert (found[0]["lanes"][0]["recorded"], found[1]["lanes"][0]["served"]) == (1, 1)
    assert found[1]["head"] == found[0]["head"]


def test_an_agent_ends_with_a_replay_that_is_killed(desk: Desk) -> None:
    command = ("--", sys.executable, "-c")
    assert desk.run("record", *command, "pass").returncode == 0
    endless = "import time; print('here', flush=True); time.sleep(600)"
    running = subprocess.Popen(
        [sys.executable, "-m", "bernstein_cli", "replay", "latest", *command, endless],
        cwd=desk.folder,
        env=desk.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert running.stdout is not None
    with running.stdout:
        assert running.stdout.readline() == b"here\n"
        running.kill()
        running.wait()
        # The agent held the other end.
        assert running.stdout.read() == b""


def test_an_empty_set_and_misplaced_options_are_refused(desk: Desk) -> None:
    empty = desk.run("replay", "--all", ".")
    misplaced = desk.run("replay", "latest", "--require-complete")

    assert (empty.returncode, empty.stderr.count("[INVALID_INPUT]")) == (1, 1)
    assert (misplaced.returncode, misplaced.stderr.count("--require-complete")) == (2, 1)


PLAN = """
stages:
  - name: draft
    steps:
      - title: Note one
        agent: {command: [%(python)s, agent.py, one, %(elsewhere)s]}
        completion_signals: [{type: path_exists, path: notes}]
      - title: Note two
        agent: {command: [%(python)s, two/agent.py, two, %(elsewhere)s], working_folder: .}
  - name: merge
    depends_on: [draft]
    steps:
      - title: Note three
        agent: {command: [%(python)s, agent.py, three, %(elsewhere)s]}
"""


def test_a_plan_of_programs_replays_to_the_recorded_head(desk: Desk) -> None:
    """Two side by side, one after them; each attempt has a lane."""
    plan = desk.folder / "plan.yaml"
    plan.write_text(PLAN % {"python": sys.executable, "elsewhere": desk.elsewhere})
    (desk.folder / "two").mkdir()
    (desk.folder / "two" / "agent.py").write_text(AGENT.replace('"notes"', '"second-notes"'))
    (desk.folder / "second-notes").write_text("second")
    seed = {"BERNSTEIN_DETERMINISTIC_SEED": "7"}
    desk.environ |= seed
    ran = desk.run("run", "plan.yaml", "--json")
    recorded = json.loads(ran.stdout)
    notes = (desk.folder / "notes").read_text()
    desk.environ["BERNSTEIN_REPLAY_RUN_ID"] = recorded["run_id"]
    replayed = desk.run("run", "plan.yaml", "--require-complete", "--json")

    assert ran.returncode == 0, ran.stderr
    assert replayed.returncode == 0, replayed.stderr
    said = json.loads(replayed.stdout)
    assert said["head_hash"] == recorded["head_hash"]
    lanes = said["replay"]["lanes"]
    assert [(each["served"], each["misses"], each["left"]) for each in lanes] == [(1, 0, 0)] * 3
    assert said["replay"]["unrecorded_tasks"] == []
    assert (desk.folder / "notes").read_text() == notes
    verified = desk.run("replay", recorded["run_id"], "--verify")
    rederived = desk.run("replay", recorded["run_id"], "--re-derive")
    assert (verified.returncode, rederived.returncode) == (0, 0)


def test_a_program_that_asks_otherwise_is_a_miss(desk: Desk) -> None:
    command = f'[sh, -c, "exec {sys.executable} agent.py $PROMPT {desk.elsewhere}"]'
    agent = f"{{command: {command}, environment: [PROMPT]}}"
    plan = desk.folder / "plan.yaml"
    plan.write_text(f"stages: [{{name: a, steps: [{{title: One, agent: {agent}}}]}}]")
    desk.environ |= {"BERNSTEIN_DETERMINISTIC_SEED": "7", "PROMPT": "one"}
    recorded = json.loads(desk.run("run", "plan.yaml", "--json").stdout)
    desk.environ |= {"BERNSTEIN_REPLAY_RUN_ID": recorded["run_id"], "PROMPT": "two"}
    missed = desk.run("run", "plan.yaml", "--json")

    assert missed.returncode == 10
    said = json.loads(missed.stdout)
    assert said["error"] == "REPLAY_MISS"
    assert "$.body.json.messages[0].content" in said["detail"]


def test_an_agent_that_said_nothing_replays_and_a_lost_recording_does_not(desk: Desk) -> None:
    desk.run("record", "--", "true")
    (silent,) = (each.name for each in desk.runs.iterdir())
    replayed = desk.run("replay", silent, "--", "true")
    talked = desk.record()
    (desk.runs / talked / "llm_http.jsonl").unlink()
    lost = desk.run("replay", talked, *desk.command())

    assert replayed.returncode == 0, replayed.stderr
    assert "reached the recorded head" in replayed.stderr
    assert (lost.returncode, lost.stderr.count("[RECORDING_MISSING]")) == (12, 1)


def test_a_secret_in_a_changed_file_is_found_by_a_scan(desk: Desk) -> None:
    token = "_".join(("ghp", "16C7e42F292c6912E7710c838347Ae178B4a"))
    (desk.folder / "credentials").write_text(f"token = {token}\n")
    run_id = desk.record()
    found = desk.run("replay", "scan", run_id, "--json")

    assert found.returncode == 1
    assert {each["part"] for each in json.loads(found.stdout)["found"]} == {"work_tree"}
    assert token not in found.stdout
