"""`bernstein run` with real processes: record, replay, misses, interruption, crashes, tampering."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
SEED = {"BERNSTEIN_DETERMINISTIC_SEED": "42"}


class GatedModel(ModelServer):
    """Answers only once its gate is open; `asked` counts the calls that have arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.asked = threading.Semaphore(0)

    def answer(self, prompt: str) -> str:
        self.asked.release()
        self.gate.wait(30)
        return super().answer(prompt)


class Desk:
    """Somebody's terminal in a project that holds the example."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.folder: Path = project.folder
        copy_example(self.folder)

    def start(self, *arguments: str, environ: dict[str, str], **streams: Any) -> Any:
        return subprocess.Popen(
            [sys.executable, "-m", "bernstein_cli", *arguments],
            cwd=self.folder,
            env={**self.project.environ, **environ},
            **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | streams),
        )

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, environ=environ)
        stdout, stderr = process.communicate(timeout=60)
        assert "Traceback" not in stderr
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def record(self, model: ModelServer, *arguments: str) -> dict[str, Any]:
        ran = self.run("run", "plan.yaml", "--json", *arguments, **SEED, **keys(model))
        assert (ran.returncode, ran.stderr.count("done ")) == (0, 4), ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def replay(self, run_id: str, *arguments: str, **environ: str) -> Any:
        return self.run("run", "plan.yaml", *arguments, BERNSTEIN_REPLAY_RUN_ID=run_id, **environ)

    def runs(self) -> list[str]:
        folder = self.folder / ".sdd" / "runs"
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def run_file(self, run_id: str, name: str) -> Path:
        return self.folder / ".sdd" / "runs" / run_id / name

    def pid(self, service: str) -> int:
        with self.project.services() as services:
            status = services.supervisor.ask({"do": "status"})
        assert status is not None
        pids: dict[str, int] = {each["service"]: each["pid"] for each in status["services"]}
        return pids[service]

    def check_sound(self, run_id: str) -> None:
        """What was acknowledged is there: the chain is whole and the schedule kept its rules."""
        verified = self.run("replay", run_id, "--verify")
        assert verified.returncode == 0, verified.stdout
        rederived = self.run("replay", run_id, "--re-derive")
        assert rederived.returncode == 0, rederived.stdout


def keys(model: ModelServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "unused"}


def programs(desk: Desk, agent: dict[str, list[str]]) -> str:
    """A plan of one program; gives its name."""
    stages = [{"name": "a", "steps": [{"title": "Work", "agent": agent}]}]
    (desk.folder / "programs.yaml").write_text(json.dumps({"stages": stages}))
    return "programs.yaml"


def is_at_work(process_id: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def desk(project: Any) -> Desk:
    return Desk(project)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gated() -> Iterator[GatedModel]:
    with GatedModel() as server:
        yield server
        server.gate.set()


@pytest.fixture
def recorded(desk: Desk, model: ModelServer) -> str:
    run_id: str = desk.record(model)["run_id"]
    return run_id


@pytest.mark.parametrize("recorded_with", [1, 4])
@pytest.mark.parametrize("replayed_with", [1, 4])
def test_a_replay_reaches_the_recorded_head_with_any_number_of_agents(
    desk: Desk, recorded_with: int, replayed_with: int
) -> None:
    with ModelServer() as model:
        run = desk.record(model, "--max-agents", str(recorded_with))
        assert run["recording"]["call_count"] == model.calls == 4
    replayed = desk.replay(run["run_id"], "--max-agents", str(replayed_with), "--json")
    assert replayed.returncode == 0
    found = json.loads(replayed.stdout)
    assert found["head_hash"] == run["head_hash"]
    assert found["replay"]["heads_equal"]
    assert (found["replay"]["hits"], found["replay"]["misses"]) == (4, 0)
    assert found["replay"]["unused_count"] == 0
    desk.check_sound(run["run_id"])
    desk.check_sound(found["run_id"])


def test_a_replay_says_that_it_asked_nobody_and_reached_the_head(desk: Desk, recorded: str) -> None:
    calls = desk.run_file(recorded, "llm_calls.jsonl").read_bytes()
    (desk.folder / "RELEASE.md").write_text("edited since\n")
    replayed = desk.replay(recorded, "--require-complete")
    assert replayed.returncode == 0
    lines = replayed.stdout.splitlines()
    line = next(each for each in lines if each.startswith("replay-coverage "))
    assert line.endswith("cached=4 hits=4 misses=0 strict_violations=0 strict=True")
    assert any(each.startswith("head equals the recorded head: ") for each in lines)
    assert desk.run_file(recorded, "llm_calls.jsonl").read_bytes() == calls
    assert (desk.folder / "RELEASE.md").read_text() == "edited since\n"


def test_a_prompt_that_was_never_recorded_is_a_miss_with_its_key_and_the_way_out(
    desk: Desk, recorded: str
) -> None:
    config = desk.folder / "bernstein.yaml"
    config.write_text(config.read_text().replace("goal: ", "goal: Do not "))
    missed = desk.replay(recorded, "--json")
    assert missed.returncode == 10
    found = json.loads(missed.stdout)
    assert found["error"] == "REPLAY_MISS"
    assert len(found["key"]) == 64
    assert found["model"] == "scripted-small"
    assert "BERNSTEIN_DETERMINISTIC_SEED" in found["detail"]
    assert "BERNSTEIN_REPLAY_ALLOW_LIVE_MISS=1" in found["detail"]
    assert "bernstein.yaml" in missed.stderr  # what differs from the recording is warned of first


def test_a_miss_may_go_live_with_a_warning_when_that_is_allowed(
    desk: Desk, model: ModelServer
) -> None:
    run_id = desk.record(model)["run_id"]
    config = desk.folder / "bernstein.yaml"
    config.write_text(config.read_text().replace("goal: ", "goal: Do not "))
    asked = model.calls
    ran = desk.replay(run_id, BERNSTEIN_REPLAY_ALLOW_LIVE_MISS="yes", **keys(model))
    assert model.calls == asked + 4
    assert ran.returncode == 1
    assert "warning: " in ran.stderr
    assert " misses=4 " in ran.stdout
    assert "first difference: step 3" in ran.stdout


def test_another_plan_is_refused_before_anything_starts(desk: Desk, recorded: str) -> None:
    plan = desk.folder / "plan.yaml"
    plan.write_text(plan.read_text() + "# a remark\n")
    refused = desk.replay(recorded)
    assert refused.returncode == 1
    assert "replay with the file as it was" in refused.stderr
    assert desk.runs() == [recorded]


@pytest.mark.parametrize("spoil", ["edited", "shortened", "longer"])
def test_a_recording_that_its_journal_does_not_vouch_for_is_refused(
    desk: Desk, recorded: str, spoil: str
) -> None:
    path = desk.run_file(recorded, "llm_calls.jsonl")
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    spoilt = {
        "edited": data.replace(b"trust", b"truth").replace(b"release", b"relapse"),
        "shortened": b"".join(lines[:-1]),
        "longer": data + lines[0],
    }
    assert spoilt[spoil] != data
    path.write_bytes(spoilt[spoil])
    refused = desk.replay(recorded, "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"] == "RECORDING_CHANGED"
    assert desk.runs() == [recorded]


def test_a_run_without_a_recording_is_refused_before_anything_starts(
    desk: Desk, recorded: str
) -> None:
    desk.run_file(recorded, "llm_calls.jsonl").unlink()
    refused = desk.replay(recorded, "--json")
    assert refused.returncode == 12
    assert json.loads(refused.stdout)["error"] == "RECORDING_MISSING"
    assert desk.runs() == [recorded]


def test_a_run_that_is_not_there_is_named(desk: Desk, recorded: str) -> None:
    for run_id in ("20000101-000000-abcdef", "../../etc"):
        refused = desk.replay(run_id)
        assert refused.returncode in {1, 12}
        assert run_id in refused.stderr
    assert desk.runs() == [recorded]


def test_an_edited_journal_is_not_replayed(desk: Desk, recorded: str) -> None:
    path = desk.run_file(recorded, "journal.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"task_completed"', b'"Task_completed"', 1))
    refused = desk.replay(recorded, "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"] == "CHAIN_BROKEN"
    assert desk.runs() == [recorded]


def test_without_a_seed_nothing_is_recorded_and_that_is_said(
    desk: Desk, model: ModelServer
) -> None:
    ran = desk.run("run", "plan.yaml", **keys(model))
    assert ran.returncode == 0
    assert "BERNSTEIN_DETERMINISTIC_SEED" in ran.stderr
    (run_id,) = desk.runs()
    assert not desk.run_file(run_id, "llm_calls.jsonl").exists()
    assert desk.replay(run_id).returncode == 12


def test_a_plan_of_programs_needs_no_model_and_says_that_none_is_recorded(desk: Desk) -> None:
    (desk.folder / "bernstein.yaml").unlink()
    plan = desk.folder / "programs.yaml"
    plan.write_text(
        "stages: [{name: a, steps: [{title: Touch, agent: {command: [touch, made]},"
        " completion_signals: [{type: path_exists, path: made}]}]}]\n"
    )
    ran = desk.run("run", "programs.yaml")
    assert ran.returncode == 0, ran.stderr
    assert "no step makes an internal model call" in ran.stderr
    assert "what programs say to their models is not recorded" in ran.stderr
    (run_id,) = desk.runs()
    refused = desk.run("run", "programs.yaml", BERNSTEIN_REPLAY_RUN_ID=run_id)
    assert refused.returncode == 1
    assert "'Touch'" in refused.stderr
    assert "--offline-agents" in refused.stderr
    desk.check_sound(run_id)


def test_a_task_that_never_succeeds_fails_the_run_and_replays_to_the_same_head(
    desk: Desk, model: ModelServer
) -> None:
    plan = desk.folder / "plan.yaml"
    plan.write_text(plan.read_text().replace('contains: "- "', "contains: never written"))
    ran = desk.run("run", "plan.yaml", **SEED, **keys(model))
    assert ran.returncode == 1
    assert "failed: Put the announcement together" in ran.stdout
    assert "tried again" in ran.stderr
    (run_id,) = desk.runs()
    desk.check_sound(run_id)
    replayed = desk.replay(run_id)
    assert "head equals the recorded head: " in replayed.stdout
    assert replayed.returncode == 0


def test_a_run_id_is_used_once(desk: Desk, model: ModelServer) -> None:
    mine = {"BERNSTEIN_RUN_ID": "mine", **SEED, **keys(model)}
    assert desk.run("run", "plan.yaml", **mine).returncode == 0
    journal = desk.run_file("mine", "journal.jsonl").read_bytes()
    again = desk.run("run", "plan.yaml", **mine)
    assert again.returncode == 1
    assert "[RUN_EXISTS]" in again.stderr
    assert desk.run_file("mine", "journal.jsonl").read_bytes() == journal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_a_run_cleanly_and_says_how_to_go_on(
    desk: Desk, gated: GatedModel, number: signal.Signals
) -> None:
    process = desk.start("run", "plan.yaml", environ={**SEED, **keys(gated)})
    gated.asked.acquire()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "interrupted" in stdout
    assert "stopping; press Ctrl-C again to stop at once" in stderr
    assert "starts again" in stderr
    (run_id,) = desk.runs()
    desk.check_sound(run_id)
    assert desk.run_file(run_id, "seal.json").exists()


def test_a_second_ctrl_c_ends_it_at_once(desk: Desk, gated: GatedModel) -> None:
    process = desk.start("run", "plan.yaml", environ={**SEED, **keys(gated)})
    gated.asked.acquire()
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode in {130, -signal.SIGINT}
    assert "Traceback" not in process.communicate()[1]


def test_a_second_ctrl_c_leaves_no_program_at_work(desk: Desk) -> None:
    os.mkfifo(desk.folder / "begun")
    script = "trap '' TERM; echo $$ > begun; sleep 600"
    process = desk.start(
        "run", programs(desk, {"command": ["sh", "-c", script]}), environ={}, stdout=None
    )
    agent = int((desk.folder / "begun").read_text())
    process.send_signal(signal.SIGINT)
    while "stopping" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read() == ""
    process.stderr.close()
    give_up = time.monotonic() + 10
    while is_at_work(agent):
        assert time.monotonic() < give_up


def test_a_progress_that_nobody_reads_does_not_end_a_run(desk: Desk, model: ModelServer) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environ = {**SEED, **keys(model)}
    process = desk.start("run", "plan.yaml", environ=environ, stdout=writer, stderr=writer)
    os.close(writer)
    assert process.wait(60) == 141
    (run_id,) = desk.runs()
    assert desk.run_file(run_id, "seal.json").exists()
    desk.check_sound(run_id)
    assert desk.replay(run_id).returncode == 0


def test_a_program_is_not_given_the_providers_key_unless_it_is_named(
    desk: Desk, model: ModelServer
) -> None:
    agent = {"command": ["sh", "-c", "env > seen"]}
    assert desk.run("run", programs(desk, agent), **keys(model)).returncode == 0
    assert "OPENAI" not in (desk.folder / "seen").read_text()
    agent |= {"environment": ["OPENAI_API_KEY"]}
    assert desk.run("run", programs(desk, agent), **keys(model)).returncode == 0
    assert "OPENAI_API_KEY=unused\n" in (desk.folder / "seen").read_text()


@pytest.mark.parametrize("service", ["journal", "recorder"])
def test_nothing_acknowledged_is_lost_when_a_service_is_killed(
    desk: Desk, gated: GatedModel, service: str
) -> None:
    process = desk.start("run", "plan.yaml", "--json", environ={**SEED, **keys(gated)})
    for _ in range(3):
        gated.asked.acquire()
    (run_id,) = desk.runs()
    before = desk.run_file(run_id, "journal.jsonl").read_bytes()
    os.kill(desk.pid(service), signal.SIGKILL)
    gated.gate.set()
    stdout, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    assert desk.run_file(run_id, "journal.jsonl").read_bytes().startswith(before)
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["recording"]["call_count"] == 4
    assert desk.replay(run_id).returncode == 0
    desk.check_sound(run_id)


def test_a_run_folder_that_vanishes_is_noticed_and_named(desk: Desk, gated: GatedModel) -> None:
    process = desk.start("run", "plan.yaml", "--json", environ={**SEED, **keys(gated)})
    for _ in range(3):
        gated.asked.acquire()
    (run_id,) = desk.runs()
    shutil.rmtree(desk.folder / ".sdd" / "runs" / run_id)
    gated.gate.set()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in stderr
    assert json.loads(stdout)["error"] in {"FOREIGN_WRITER", "RUN_NOT_FOUND"}
    assert run_id in stderr.splitlines()[-1]


def test_on_a_terminal_running_tasks_are_shown_as_lines_that_change(
    desk: Desk, model: ModelServer
) -> None:
    ours, theirs = pty.openpty()
    process = desk.start(
        "run",
        "plan.yaml",
        environ={**SEED, **keys(model), "TERM": "xterm", "COLUMNS": "60", "LINES": "20"},
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux's way to say that the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0
    assert b"working  Write the thanks (scripted-small)" in shown
    assert b"F\x1b[J" in shown
    assert shown.count(b"done     Put the announcement together") == 1
    assert b"started" not in shown
    process.stdout.close()
