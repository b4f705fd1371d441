"""Arguments, errors and exit codes of the command, without a service."""

import json
import os
import sys
from importlib.util import find_spec
from subprocess import run

import pytest

from bernstein_cli import exit_codes
from bernstein_cli.main import main, tell
from bernstein_cli.signing_key import choose_key
from bernstein_formats import errors


@pytest.fixture
def bernstein(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BERNSTEIN_SVC_PEER", raising=False)

    def run_main(*argv):
        monkeypatch.setattr(sys, "argv", ["bernstein", *argv])
        capsys.readouterr()
        try:
            code: object = main()
        except SystemExit as ended:
            code = ended.code
        return (code, *capsys.readouterr())

    return run_main


def test_the_version_says_which_distribution_this_is(bernstein):
    code, out, _ = bernstein("--version")
    assert code == 0
    assert out.startswith("bernstein, version ")
    assert out.endswith(" (bernstein-services)\n")


def test_without_arguments_the_commands_are_listed(bernstein):
    code, out, err = bernstein()
    assert (code, err) == (0, "")
    for name in ("run", "replay", "verify", "services", "keys", "import", "tour"):
        assert f"\n  {name} " in out


@pytest.mark.parametrize(
    "argv",
    [
        ["replay"],
        ["replay", "a", "b"],
        ["replay", "diff", "a"],
        ["replay", "r", "--limit", "-1"],
        ["replay", "r", "--from-step", "x"],
        ["verify", "run"],
        ["services", "frobnicate"],
        ["services", "logs", "nosuch"],
    ],
)
def test_wrong_usage_is_2_in_words_and_as_json(bernstein, argv):
    code, out, err = bernstein(*argv)
    assert (code, out) == (2, "")
    assert err.endswith("[USAGE]\n")
    assert "Traceback" not in err
    code, out, _ = bernstein(*argv, "--json")
    assert code == 2
    assert json.loads(out)["error"] == "USAGE"


def test_an_error_is_one_line_and_under_json_one_document(capsys):
    error = errors.ReplayMissError("call 3 was never recorded", key="v1:ab", model="m")
    assert tell(error, as_json=True) == 10
    out, err = capsys.readouterr()
    assert err == "bernstein: call 3 was never recorded [REPLAY_MISS]\n"
    assert json.loads(out) == {
        "error": "REPLAY_MISS",
        "detail": "call 3 was never recorded",
        "key": "v1:ab",
        "model": "m",
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ReplayMissError("x"), 10),
        (errors.ReplayRecordingMissingError("x"), 12),
        (errors.ChainBroken("x"), 1),
        (errors.Unavailable("x"), 1),
    ],
)
def test_each_reason_has_its_exit_code(error, code):
    assert exit_codes.exit_code_of(error) == code


def test_a_hostile_error_text_stays_one_line(capsys):
    tell(errors.InvalidInput("a\x1b[2J\nb\ud800"), as_json=False)
    assert capsys.readouterr().err == "bernstein: a\\x1b[2J\\nb\\ud800 [INVALID_INPUT]\n"


@pytest.mark.parametrize(
    "argv", [["nosuch", "--verify"], ["nosuch", "--from-step", "1"], ["nosuch"]]
)
def test_without_a_state_folder_nothing_is_made_and_nothing_starts(bernstein, tmp_path, argv):
    code, out, _ = bernstein("replay", *argv)
    assert code == 1
    assert out == f"Journal not found: {tmp_path}/.sdd/runs/nosuch/journal.jsonl\n"
    code, out, _ = bernstein("replay", *argv, "--as-json")
    assert json.loads(out)["error"] == "RUN_NOT_FOUND"
    assert list(tmp_path.iterdir()) == []


def test_without_a_state_folder_no_run_is_listed(bernstein, tmp_path):
    assert bernstein("replay", "list") == (0, "No runs recorded yet.\n", "")
    assert json.loads(bernstein("replay", "list", "--as-json")[1]) == {"runs": []}
    (tmp_path / ".sdd" / "runs").mkdir(parents=True)
    assert bernstein("replay", "list", "--offline") == (0, "No replay logs found.\n", "")


@pytest.mark.parametrize("run_id", ["../x", "a/b", "..", "a\nb", "é", ""])
def test_an_impossible_run_id_is_one_line(bernstein, tmp_path, run_id):
    (tmp_path / ".sdd").mkdir()
    for mode in ([], ["--verify"], ["--re-derive"], ["--from-step", "1"]):
        code, out, err = bernstein("replay", run_id, "--offline", *mode)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert err.endswith("[INVALID_INPUT]\n")


def test_an_agents_own_journal_is_shown_unless_a_mode_of_runs_is_asked_for(bernstein, tmp_path):
    folder = tmp_path / ".sdd" / "runtime" / "journal" / "agent-1"
    folder.mkdir(parents=True)
    (folder / "000000.jsonl").write_bytes(b"")
    code, out, _ = bernstein("replay", "agent-1", "--offline")
    assert (code, out) == (0, "Journal for agent-1 is empty\n")
    code, out, _ = bernstein("replay", "agent-1", "--offline", "--verify")
    assert (code, "Journal not found" in out) == (1, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(bernstein, monkeypatch, shell):
    monkeypatch.setenv("PATH", os.defpath)
    code, out, _ = bernstein("completions", "--shell", shell)
    assert code == 0
    assert f"_BERNSTEIN_COMPLETE={shell}_complete" in out


def completed(bernstein, monkeypatch, line):
    monkeypatch.setenv("_BERNSTEIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    _, out, _ = bernstein()
    return [each.partition(",")[2] for each in out.splitlines()]


def test_run_ids_are_completed_without_a_service(bernstein, monkeypatch, tmp_path):
    for name in ("20240101-a", "20240102-b"):
        (tmp_path / ".sdd" / "runs" / name).mkdir(parents=True)
    (tmp_path / "other" / "runs" / "elsewhere").mkdir(parents=True)
    assert completed(bernstein, monkeypatch, "bernstein replay 2024") == [
        "20240102-b",
        "20240101-a",
    ]
    assert "latest" in completed(bernstein, monkeypatch, "bernstein verify run l")
    (tmp_path / ".sdd" / "runs" / "2025\x1b[2J").mkdir()
    assert completed(bernstein, monkeypatch, "bernstein replay 2025") == [""]
    assert completed(bernstein, monkeypatch, "bernstein replay --sdd-dir other el") == ["elsewhere"]
    assert completed(bernstein, monkeypatch, "bernstein rep") == ["replay"]


def test_a_key_is_chosen_by_flag_then_by_the_environment():
    environ = {
        "BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH": "env.pem",
        "BERNSTEIN_RUN_RECEIPT_SIGNING_ENV_VAR": "NAME",
        "BERNSTEIN_RUN_RECEIPT_SIGNING_KID": " op ",
    }
    assert choose_key("k.pem", None, "", environ).arguments() == ["--key-path", "k.pem"]
    assert choose_key(None, "K", "me", environ).arguments() == ["--key-env", "K", "--key-id=me"]
    assert choose_key(None, None, "", environ).arguments() == [
        "--key-path",
        "env.pem",
        "--key-id=op",
    ]
    assert choose_key(None, None, "", {}).is_resident


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "plan.yaml"],
        ["verify", "run", "nosuch", "--signing-env-var", "RECEIPT_KEY"],
    ],
)
def test_a_command_that_was_given_a_key_is_hidden_before_it_does_anything(tmp_path, argv):
    (tmp_path / "plan.yaml").write_text("stages: [")
    # 3 is PR_GET_DUMPABLE; what is not dumpable has no /proc/<pid>/environ for its own user.
    check = (
        "import ctypes, os\n"
        "from bernstein_cli.main import run_command\n"
        f"print(run_command({argv!r}), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        "print('OPENAI_API_KEY' in os.environ)\n"
    )
    done = run(
        [sys.executable, "-c", check],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_API_KEY": "k", "RECEIPT_KEY": "raw:00"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"1 0\n{argv[0] != 'run'}\n"


HEAVY = ("grpc", "google", "yaml", "structlog", "importlib.metadata", "rich", "asyncio")


@pytest.mark.parametrize("command", ["verify_receipt", "replay"])
def test_a_command_that_reads_files_loads_nothing_heavy(command):
    assert find_spec("grpc") is not None
    check = (
        f"import sys; import bernstein_cli.main, bernstein_cli.commands.{command};"
        f" print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("before", "code"), [("", -2), ("signal.signal(2, signal.SIG_IGN)", 0)])
def test_an_interrupt_while_modules_are_loaded_ends_the_command_without_a_word(before, code):
    program = f"import os, signal; {before}\nimport bernstein_cli.__main__\nos.kill(os.getpid(), 2)"
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
