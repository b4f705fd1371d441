"""Programs, files and signals: what an agent may do, and how it is ended."""

import os
import signal
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from bernstein_formats.errors import InvalidInput, LimitExceeded, ProviderFailed, StoreFailed
from bernstein_orchestrator.agents import Programs
from bernstein_orchestrator.crew import Crew
from bernstein_orchestrator.interrupts import stopping_on_signals
from bernstein_orchestrator.plan import CommandAgent, Signal, SignalType, Step
from bernstein_orchestrator.processes import (
    TAIL_LIMIT,
    Ending,
    Finished,
    Groups,
    allowed_environment,
    run_program,
)
from bernstein_orchestrator.signals import Checks
from bernstein_orchestrator.workspace import READ_LIMIT, Workspace

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def run(folder: Path, *command: str, seconds: float = 20, stop: threading.Event | None = None):
    return run_program(
        command,
        groups=Groups(),
        folder=folder,
        environment=ENVIRONMENT,
        timeout_seconds=seconds,
        stop=stop or threading.Event(),
    )


def is_alive(process_id: int) -> bool:
    """Tell whether a process goes on running after a moment; a zombie does not."""
    deadline = monotonic() + 5
    while monotonic() < deadline:
        try:
            stat = Path(f"/proc/{process_id}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return False
    return True


def test_a_program_gets_no_input_and_its_output_is_kept(tmp_path: Path) -> None:
    finished = run(tmp_path, "sh", "-c", "cat; echo out; echo err >&2; exit 3")
    assert (finished.ending, finished.exit_code) == (Ending.EXITED, 3)
    assert finished.tail == "out\nerr\n"
    assert not finished.is_good


def test_of_much_output_the_end_is_kept(tmp_path: Path) -> None:
    script = "import sys; sys.stdout.write('x' * 1_000_000 + 'end')"
    finished = run(tmp_path, sys.executable, "-c", script)
    assert finished.is_good
    assert len(finished.tail) == TAIL_LIMIT
    assert finished.tail.endswith("xend")


def test_a_program_that_is_not_there_is_not_started(tmp_path: Path) -> None:
    finished = run(tmp_path, "no-such-program-here")
    assert finished.ending is Ending.NOT_STARTED
    assert "no-such-program-here" in finished.tail


def test_at_the_time_limit_the_whole_group_is_ended(tmp_path: Path) -> None:
    finished = run(tmp_path, "sh", "-c", "sleep 60 & echo $! > child; wait", seconds=0.3)
    assert finished.ending is Ending.TIMED_OUT
    assert finished.is_group_ended
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_a_program_that_ignores_term_is_killed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bernstein_orchestrator.processes._GRACE_SECONDS", 0.3)
    begun = monotonic()
    finished = run(tmp_path, "sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60", seconds=0.3)
    assert finished.exit_code == -signal.SIGKILL
    assert monotonic() - begun < 20


def test_what_a_program_leaves_behind_in_its_group_is_ended(tmp_path: Path) -> None:
    finished = run(tmp_path, "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $! > child")
    assert finished.is_good
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_a_stop_ends_a_program(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert run(tmp_path, "sleep", "60", stop=stop).ending is Ending.STOPPED


def test_the_environment_is_an_allow_list() -> None:
    given = {
        "PATH": "p", "HOME": "h", "LC_TIME": "C", "SSH_AUTH_SOCK": "s", "OPENAI_API_KEY": "k",
        "BERNSTEIN_SVC_PEER": "b", "WANTED": "w",
    }  # fmt: skip
    found = allowed_environment(given, ("WANTED", "BERNSTEIN_SVC_PEER"))
    assert found == {"PATH": "p", "HOME": "h", "LC_TIME": "C", "WANTED": "w"}


def test_a_working_folder_that_leads_out_by_a_link_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "out").symlink_to(tmp_path)
    programs = Programs(Workspace(project), ENVIRONMENT, threading.Event())
    work = programs.work(CommandAgent(("true",), "out"))
    assert work.failure == "agent: not started"
    assert "leads out of the project" in work.detail


@pytest.mark.parametrize(
    ("script", "failure"),
    [("exit 0", ""), ("exit 7", "agent: exit code 7"), ("sleep 9", "agent: timed out after 0.2 s")],
)
def test_how_a_program_ended_is_recorded_in_fixed_words(
    tmp_path: Path, script: str, failure: str
) -> None:
    programs = Programs(Workspace(tmp_path), ENVIRONMENT, threading.Event())
    work = programs.work(CommandAgent(("sh", "-c", script), timeout_seconds=0.2 if failure else 20))
    if script == "exit 7":
        work = programs.work(CommandAgent(("sh", "-c", script)))
    assert work.failure == failure


@pytest.mark.parametrize(
    "path",
    ["../x", "/x", "a/../../x", ".git/hooks/x", ".sdd/runs/x", "a/.GIT/x", "", "a\0b", "a\nb"],
)
def test_no_path_leads_out_or_to_the_evidence(tmp_path: Path, path: str) -> None:
    workspace = Workspace(tmp_path)
    with pytest.raises(InvalidInput):
        workspace.write(path, b"x")
    assert workspace.read(path) is None
    assert not workspace.exists(path)


def test_no_link_is_followed_out_of_the_project(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("s")
    (project / "folder").symlink_to(outside)
    (project / "file").symlink_to(outside / "secret")
    workspace = Workspace(project)
    assert (workspace.read("file"), workspace.read("folder/secret")) == (None, None)
    with pytest.raises(StoreFailed, match="through a symbolic link"):
        workspace.write("folder/new", b"x")
    workspace.write("file", b"replaced")
    assert (outside / "secret").read_text() == "s"
    assert not (project / "file").is_symlink()


def test_a_write_keeps_the_mode_and_leaves_no_other_file(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "run.sh"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o755)
    Workspace(tmp_path).write("sub/run.sh", b"new")
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o755)
    assert [each.name for each in target.parent.iterdir()] == ["run.sh"]


def test_a_folder_in_the_way_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(StoreFailed, match="a cannot be written"):
        Workspace(tmp_path).write("a", b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_scratch_folder_lies_over_the_project(tmp_path: Path) -> None:
    project, scratch = tmp_path / "p", tmp_path / "s"
    project.mkdir()
    scratch.mkdir()
    (project / "a").write_text("old")
    (project / "b").write_text("kept")
    workspace = Workspace(project, scratch)
    workspace.write("a", b"new")
    assert (workspace.read("a"), workspace.read("b")) == (b"new", b"kept")
    assert (project / "a").read_text() == "old"
    assert (workspace.wrote("./a"), workspace.wrote("b")) == (True, False)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (READ_LIMIT + 1))
    with pytest.raises(LimitExceeded, match="big is larger"):
        Workspace(tmp_path).read("big")


def checks(folder: Path, answer: str = "PASS") -> tuple[Checks, list[str]]:
    told: list[str] = []

    def ask(lane: str, prompt: str) -> str:
        told.append(lane)
        if answer == "none":
            raise ProviderFailed("away")
        return answer

    def shell(command: str) -> Finished:
        told.append(command)
        ending = Ending.STOPPED if command == "stopped" else Ending.EXITED
        return Finished(ending, 0 if command == "true" else 1)

    return Checks(Workspace(folder), ask=ask, shell=shell, warn=told.append), told


def failed(folder: Path, kind: SignalType, value: str, answer: str = "PASS"):
    step = Step("T", "T", 1, signals=(Signal(kind, value),))
    return checks(folder, answer)[0].failed(step, "id-1", "work", None)


@pytest.mark.parametrize(
    ("kind", "value", "holds"),
    [
        (SignalType.PATH_EXISTS, "src/a.py", True),
        (SignalType.PATH_EXISTS, "src", True),
        (SignalType.PATH_EXISTS, "src/*.py", True),
        (SignalType.PATH_EXISTS, "src/b.py", False),
        (SignalType.PATH_EXISTS, "/etc/passwd", False),
        (SignalType.PATH_EXISTS, "../outside", False),
        (SignalType.GLOB_EXISTS, "**/*.py", True),
        (SignalType.GLOB_EXISTS, "*.rs", False),
        (SignalType.GLOB_EXISTS, "../*", False),
        (SignalType.GLOB_EXISTS, "/etc/*", False),
        (SignalType.GLOB_EXISTS, ".sdd/**", False),
        (SignalType.FILE_CONTAINS, "src/a.py :: import", True),
        (SignalType.FILE_CONTAINS, "src/a.py :: a :: b", True),
        (SignalType.FILE_CONTAINS, "src/a.py :: nothing", False),
        (SignalType.FILE_CONTAINS, "binary :: x", False),
        (SignalType.FILE_CONTAINS, "src :: x", False),
        (SignalType.TEST_PASSES, "true", True),
        (SignalType.TEST_PASSES, "false", False),
        (SignalType.LLM_REVIEW, "tidy", True),
        (SignalType.LLM_JUDGE, "right", True),
        (SignalType.SCHEMA_VALID, "{}", False),
        (SignalType.CRITERIA_MATCH, "{}", False),
        (SignalType.HASH_STABLE, "sha256:00", False),
        (SignalType.FIGURES_GROUNDED, "strict", False),
        (SignalType.ABSENCE_VERIFIED, "call-1", False),
    ],
)
def test_each_signal_holds_or_is_named(
    tmp_path: Path, kind: SignalType, value: str, holds: bool
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".sdd" / "runs").mkdir(parents=True)
    (tmp_path / "outside").touch()
    (project / "src" / "a.py").write_text("import a :: b\n")
    (project / "binary").write_bytes(b"x\xff")
    assert failed(project, kind, value) == (() if holds else (f"{kind.value}: {value}",))


def test_a_verdict_other_than_pass_fails_and_silence_is_told_apart(tmp_path: Path) -> None:
    assert failed(tmp_path, SignalType.LLM_JUDGE, "c", "pass, fine\nFAIL") == ()
    assert failed(tmp_path, SignalType.LLM_JUDGE, "c", "\nPASS") == ("llm_judge: c",)
    assert failed(tmp_path, SignalType.LLM_REVIEW, "c", "none") == (
        "llm_review: c (the model did not answer)",
    )


def test_a_check_that_was_stopped_has_no_verdict(tmp_path: Path) -> None:
    assert failed(tmp_path, SignalType.TEST_PASSES, "stopped") is None


def test_no_judge_is_asked_when_something_else_failed(tmp_path: Path) -> None:
    asked, told = checks(tmp_path)
    signals = (Signal(SignalType.LLM_JUDGE, "c"), Signal(SignalType.PATH_EXISTS, "x"))
    assert asked.failed(Step("T", "T", 1, signals=signals), "id-1", "", None) == ("path_exists: x",)
    assert told == []


def test_results_are_taken_by_name_or_as_they_come() -> None:
    crew: Crew[int] = Crew(2, threading.Event())
    first = threading.Event()
    crew.start("slow", lambda: 1 if first.wait(10) else 0)
    crew.start("quick", lambda: 2)
    taken = crew.take()
    assert taken is not None
    assert (taken.name, taken.result) == ("quick", 2)
    first.set()
    slow = crew.take("slow")
    assert slow is not None
    assert slow.result == 1


def test_an_error_is_handed_over_and_a_stop_ends_the_waiting() -> None:
    def fail() -> int:
        raise ProviderFailed("away")

    stop = threading.Event()
    crew: Crew[int] = Crew(1, stop)
    crew.start("a", fail)
    done = crew.take("a")
    assert done is not None
    assert isinstance(done.error, ProviderFailed)
    stop.set()
    assert crew.take() is None


def test_the_first_interrupt_stops_politely_and_the_second_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop, told = threading.Event(), threading.Semaphore(0)
    with stopping_on_signals(stop, told.release):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5)
        assert told.acquire(timeout=5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert not told.acquire(blocking=False)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_else_ends_processes_stops_politely_too(number: signal.Signals) -> None:
    stop = threading.Event()
    with stopping_on_signals(stop, lambda: None):
        os.kill(os.getpid(), number)
        assert stop.wait(5)


def test_a_signal_that_is_to_be_ignored_stays_ignored() -> None:
    stop = threading.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_signals(stop, lambda: None):
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not stop.is_set()


def test_who_ends_in_a_hurry_leaves_no_program_at_work_and_none_begins(tmp_path: Path) -> None:
    groups = Groups()
    process = groups.start(["sh", "-c", "trap '' TERM; sleep 60 & wait"], tmp_path, ENVIRONMENT)
    assert process is not None
    groups.end()
    with process:
        assert process.wait(20) == -signal.SIGKILL
    assert groups.start(["true"], tmp_path, ENVIRONMENT) is None
