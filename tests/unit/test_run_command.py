"""The run command's own decisions: environment, words, JSON and exit codes; no service starts."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_cli import main as command
from bernstein_cli.output import json_text
from bernstein_cli.run_environment import read_run_environment
from bernstein_cli.run_progress import LiveBlock, PlainLines, lines_of, progress_view
from bernstein_cli.run_summary import advice_lines, exit_code, summary_document, summary_lines
from bernstein_client.provider_environment import take_provider_keys
from bernstein_client.recorder import Provider, Recording, UnusedCall
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.progress import (
    ReplayResult,
    RunResult,
    RunStarted,
    TaskFinished,
    TaskStarted,
    Warned,
)

HEAD = "ab" * 32
RUN = RunResult(
    run_id="r1",
    folder=Path(".sdd/runs/r1"),
    outcome="completed",
    completed=("Draft", "Merge"),
    failed=(),
    undone=(),
    head_hash_hex=HEAD,
    row_count=12,
    recording=Recording(2, 345, "cd" * 32),
    replay=None,
    next_step="",
)
REPLAYED = ReplayResult(
    replay_of="r1",
    recorded_head=HEAD,
    head=HEAD,
    first_difference="",
    coverage_line="replay-coverage run_dir=x cached=2 hits=2 misses=0",
    hit_count=2,
    miss_count=0,
    unused_calls=(),
    unused_count=0,
    unrecorded_tasks=(),
)
REPLAY = replace(RUN, run_id="r2", recording=None, replay=REPLAYED)


def options(plan: str, project: str = ".") -> RunOptions:
    return RunOptions(Path(plan), Path(project), Path(project, ".sdd"))


def test_an_empty_environment_records_nothing_and_knows_no_provider() -> None:
    found = read_run_environment({"BERNSTEIN_DETERMINISTIC_SEED": "  "})
    assert found.seed == found.replay_run_id == found.run_id == ""
    assert not found.allow_live_miss
    assert found.config_path is None
    assert found.providers == ()


def test_the_variables_arrive_as_fields() -> None:
    found = read_run_environment(
        {
            "BERNSTEIN_DETERMINISTIC_SEED": " 42 ",
            "BERNSTEIN_REPLAY_RUN_ID": "r1",
            "BERNSTEIN_RUN_ID": "mine",
            "BERNSTEIN_SEED_PATH": "other.yaml",
            "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
            "ANTHROPIC_API_KEY": "k",
        }
    )
    assert (found.seed, found.replay_run_id, found.run_id) == ("42", "r1", "mine")
    assert found.config_path == Path("other.yaml")
    assert found.providers == (
        Provider("openai", "http://127.0.0.1:1/v1", ""),
        Provider("anthropic", "", "k"),
    )


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("1", True), (" True ", True), ("YES", True), ("on", True), ("0", False), ("y", False)],
)
def test_live_misses_are_allowed_by_the_peers_words(text: str, allowed: bool) -> None:
    found = read_run_environment({"BERNSTEIN_REPLAY_ALLOW_LIVE_MISS": text})
    assert found.allow_live_miss is allowed


@pytest.mark.parametrize(
    ("text", "sealed"),
    [
        (None, True), ("1", True), ("yes", True), ("", False), ("  ", False), ("0", False),
        (" False", False), ("NO", False), ("off\n", False),
    ],
)  # fmt: skip
def test_the_spine_is_sealed_unless_the_peers_words_say_no(text: str | None, sealed: bool) -> None:
    environ = {} if text is None else {"BERNSTEIN_LINEAGE_ENABLED": text}
    assert read_run_environment(environ).spine_seal is sealed


def test_keys_of_providers_are_taken_away_and_nothing_else() -> None:
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_BASE_URL": "u", "PATH": "p"}
    take_provider_keys(environ)
    assert environ == {"OPENAI_BASE_URL": "u", "PATH": "p"}


def test_exit_codes_say_what_came_of_a_run() -> None:
    unused = replace(REPLAYED, unused_count=1, unused_calls=(UnusedCall(2, "ef" * 32, "m"),))
    other_head = replace(REPLAYED, head="00" * 32)
    cases = [
        (RUN, True, 0),
        (replace(RUN, outcome="failed"), False, 1),
        (replace(RUN, outcome="interrupted"), False, 130),
        (REPLAY, True, 0),
        (replace(REPLAY, replay=unused), False, 0),
        (replace(REPLAY, replay=unused), True, 11),
        (replace(REPLAY, replay=other_head), True, 1),
        (replace(REPLAY, outcome="failed"), False, 0),
    ]
    found = [exit_code(result, require_complete=complete) for result, complete, _ in cases]
    assert found == [code for _, _, code in cases]


def test_a_recorded_run_tells_how_to_replay_it() -> None:
    assert list(summary_lines(RUN)) == [
        "run r1: completed",
        "folder: .sdd/runs/r1",
        "tasks: 2 done, 0 failed, 0 not done",
        "recorded: 2 model calls, 345 bytes",
        f"sealed head: {HEAD} (12 rows)",
    ]
    assert "  BERNSTEIN_REPLAY_RUN_ID=r1 bernstein run 'my plan.yaml'" in list(
        advice_lines(RUN, options("my plan.yaml"))
    )


def test_what_is_advised_can_be_typed_where_the_run_was_started() -> None:
    lines = list(advice_lines(replace(RUN, has_programs=True), options("p.yaml", "my project")))
    assert lines == [
        "next:",
        "  BERNSTEIN_REPLAY_RUN_ID=r1 bernstein run p.yaml -w 'my project' --offline-agents",
        "  bernstein replay r1 --verify --sdd-dir 'my project/.sdd'",
        "  bernstein replay r1 --re-derive --sdd-dir 'my project/.sdd'",
        "  bernstein verify run r1 --signing-key-path KEY.pem -w 'my project'",
    ]


def test_a_replay_tells_its_coverage_and_that_the_heads_are_equal() -> None:
    lines = list(summary_lines(REPLAY))
    assert REPLAYED.coverage_line in lines
    assert f"head equals the recorded head: {HEAD}" in lines


def test_a_replay_that_parts_names_the_first_difference_and_how_to_look_at_it() -> None:
    parted = replace(REPLAYED, head="00" * 32, first_difference="step 3: recorded a, replayed b")
    result = replace(REPLAY, replay=parted)
    assert "first difference: step 3: recorded a, replayed b" in list(summary_lines(result))
    assert "  bernstein replay diff r1 r2" in list(advice_lines(result, options("p.yaml")))


def test_recorded_calls_that_nobody_asked_for_are_listed_up_to_a_limit() -> None:
    calls = tuple(UnusedCall(line, f"{line:064x}", "m") for line in range(1, 13))
    lines = list(
        summary_lines(
            replace(REPLAY, replay=replace(REPLAYED, unused_calls=calls, unused_count=12))
        )
    )
    assert "recorded calls that nobody asked for: 12" in lines
    assert f"  line 1: m (key {1:064x})" in lines
    assert "  and 2 more" in lines


def test_failed_and_undone_tasks_are_named() -> None:
    result = replace(RUN, outcome="failed", completed=(), failed=("Draft",), undone=("Merge",))
    lines = list(summary_lines(result))
    assert "tasks: 0 done, 1 failed, 1 not done" in lines
    assert "  failed: Draft" in lines
    assert "  not done: Merge" in lines


def test_the_report_is_one_json_document_with_the_same_facts() -> None:
    document = json.loads(json_text(summary_document(REPLAY)))
    assert document["run_id"] == "r2"
    assert document["ok"] is True
    assert document["head_hash"] == HEAD
    assert document["replay"]["heads_equal"] is True
    assert document["replay"]["misses"] == 0
    assert json.loads(json_text(summary_document(RUN)))["recording"]["call_count"] == 2


def test_progress_is_a_line_an_event() -> None:
    finished = TaskFinished("t", "Draft", 1, ("path_exists: x",), True, "one\ntwo")
    assert list(lines_of(finished)) == [
        "failed   Draft: path_exists: x; tried again",
        "         | one",
        "         | two",
    ]
    assert list(lines_of(TaskStarted("t", "Draft", 2, "m"))) == ["started  Draft (m, attempt 2)"]
    assert list(lines_of(RunStarted("r2", Path("f"), 3, 1, "r1", False))) == [
        "replay r2 of r1: 3 tasks, in f"
    ]


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "5")
    return stream


def test_on_a_terminal_the_line_of_a_task_is_replaced_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = on_a_terminal(monkeypatch)
    view = progress_view()
    assert isinstance(view, LiveBlock)
    view.show(TaskStarted("t", "Draft", 1, "m"))
    view.show(TaskFinished("t", "Draft", 1, (), False, ""))
    view.close()
    assert terminal.getvalue() == "working  Draft (m)\n\x1b[1F\x1b[Jdone     Draft\n"


def test_a_line_never_wraps_and_the_block_is_never_higher_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = on_a_terminal(monkeypatch)
    view = progress_view()
    for number in range(6):
        view.show(TaskStarted(str(number), "漢字" * 20 + "\x1b[2J", 1, "m"))
    last_block = terminal.getvalue().rpartition("\x1b[J")[2].splitlines()
    assert len(last_block) == 3
    assert all(line.startswith("working  漢字") and line.endswith("…") for line in last_block)


def test_without_a_terminal_and_on_a_dumb_one_there_are_plain_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(progress_view(), PlainLines)
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress_view(), PlainLines)


def test_a_title_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    PlainLines().show(Warned("evil \x1b[2J\rtitle"))
    assert capsys.readouterr().err == "warning: evil \\x1b[2J\\rtitle\n"


CYCLE = """
stages:
  - {name: a, depends_on: [b], steps: [{title: A}]}
  - {name: b, depends_on: [a], steps: [{title: B}]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("BERNSTEIN_REPLAY_RUN_ID", "BERNSTEIN_SEED_PATH", "BERNSTEIN_SVC_PEER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("stages: [", "plan.yaml"),
        ("name: x\n", "needs at least one stage"),
        (CYCLE, "cycle"),
        ("stages: [{name: a, depends_on: [nowhere], steps: [{title: A}]}]", "nowhere"),
        ("stages: [{name: a, steps: [{title: A}]}]", "internal_llm_provider is none"),
    ],
)
def test_a_plan_that_cannot_be_run_gives_one_line_and_leaves_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], plan: str, said: str
) -> None:
    (project / "plan.yaml").write_text(plan)
    assert command.run_command(["run", "plan.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("bernstein: ")
    assert said in shown.err
    assert [path.name for path in project.iterdir()] == ["plan.yaml"]


def test_a_plan_that_is_not_there_is_wrong_usage(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run_command(["run", "nowhere.yaml"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err


def test_require_complete_is_for_replays_only(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "plan.yaml").write_text("stages: [{name: a, steps: [{title: A}]}]")
    assert command.run_command(["run", "plan.yaml", "--require-complete"]) == 2
    assert "BERNSTEIN_REPLAY_RUN_ID" in capsys.readouterr().err


def test_a_replay_in_a_folder_that_holds_no_run_is_refused_before_anything_is_made(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "plan.yaml").write_text(
        "stages: [{name: a, steps: [{title: A, agent: {command: ['true']}}]}]"
    )
    monkeypatch.setenv("BERNSTEIN_REPLAY_RUN_ID", "r1")
    assert command.run_command(["run", "plan.yaml"]) == 1
    assert "RUN_NOT_FOUND" in capsys.readouterr().err
    assert not (project / ".sdd").exists()
