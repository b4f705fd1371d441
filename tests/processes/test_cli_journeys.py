"""What a user does with the command, each step a process, with real services and signers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

RUNS = Path(__file__).parents[1] / "vectors" / "data" / "event-journal" / "157-cli" / "sdd"


@pytest.fixture
def recorded(project):
    """The project, with runs in it."""
    shutil.copytree(RUNS / "runs", project.sdd / "runs")
    return project


def command(*argv):
    return [sys.executable, "-m", "bernstein_cli", *map(str, argv)]


def bernstein(project, *argv, **variables):
    return subprocess.run(
        command(*argv),
        cwd=project.folder,
        env={**project.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def document(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_run_is_signed_verified_and_a_changed_byte_is_found(recorded):
    assert bernstein(recorded, "keys", "new", "op.pem").returncode == 0
    signed = bernstein(recorded, "verify", "run", "ok", "--signing-key-path", "op.pem", "--json")
    receipt = document(signed)
    assert receipt["key_id"] == "op.pem"
    assert receipt["journal_events"] == 4
    path = Path(receipt["receipt_path"])
    pinned = ["--public-key", "op.pub.pem", "--require-provenance", "--json"]
    good = bernstein(recorded, "verify", "receipt", path, *pinned)
    assert (good.returncode, document(good)["tier"]) == (0, "provenance")
    path.write_bytes(path.read_bytes().replace(b"hotel-1", b"hotel-2", 1))
    bad = bernstein(recorded, "verify", "receipt", path, *pinned)
    assert bad.returncode == 2
    assert document(bad)["divergent_step"] == 1


def test_the_resident_signer_signs_with_the_configured_key(recorded):
    bernstein(recorded, "keys", "new", "op.pem")
    state = recorded.sdd / "svc"
    state.mkdir()
    key = recorded.folder / "op.pem"
    (state / "bernstein.toml").write_text(
        f'[signer]\nreceipt_key_file = "{key}"\nreceipt_key_id = "op-2026"\n'
    )
    signed = bernstein(recorded, "verify", "run", "ok", "--json")
    assert document(signed)["key_id"] == "op-2026"


def test_a_key_in_a_variable_is_seen_by_the_signer_alone(recorded):
    secret = "raw:" + "07" * 32
    signed = bernstein(
        recorded, "verify", "run", "ok", "--signing-env-var", "RECEIPT_KEY", RECEIPT_KEY=secret
    )
    assert signed.returncode == 0, signed.stderr
    status = document(bernstein(recorded, "services", "status", "--json"))
    pids = [service["pid"] for service in status["services"]]
    assert pids
    for pid in pids:
        assert b"RECEIPT_KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
    logged = b"".join(log.read_bytes() for log in (recorded.sdd / "svc" / "logs").iterdir())
    assert b"07070707" not in logged


def test_a_refused_receipt_leaves_nothing_behind(recorded):
    bernstein(recorded, "keys", "new", "op.pem")
    refused = bernstein(
        recorded,
        *("verify", "run", "tampered", "--signing-key-path", "op.pem"),
        *("-o", "out/r.json", "--json"),
    )
    assert refused.returncode == 1
    assert document(refused)["error"] == "CHAIN_BROKEN"
    assert document(refused)["step"] == "1"
    assert list((recorded.folder / "out").iterdir()) == []
    assert not (recorded.sdd / "runs" / "tampered" / "run-receipt.json").exists()


@pytest.mark.parametrize("name", ["op.pem", ".sdd/runs/ok/journal.jsonl", "."])
def test_a_receipt_is_never_written_over_something_else(recorded, name):
    bernstein(recorded, "keys", "new", "op.pem")
    target = recorded.folder / name
    before = target.read_bytes() if target.is_file() else b""
    refused = bernstein(
        recorded, "verify", "run", "ok", "--signing-key-path", "op.pem", "--output", name
    )
    assert refused.returncode == 1
    assert refused.stderr.endswith("[CONFLICT]\n")
    assert before == (target.read_bytes() if target.is_file() else b"")


def test_a_receipt_does_not_take_the_place_of_a_pipe(recorded):
    bernstein(recorded, "keys", "new", "op.pem")
    os.mkfifo(recorded.folder / "pipe")
    refused = bernstein(
        recorded, "verify", "run", "ok", "--signing-key-path", "op.pem", "-o", "pipe"
    )
    assert refused.returncode == 1
    assert refused.stderr.endswith("[CONFLICT]\n")
    assert (recorded.folder / "pipe").is_fifo()


def test_a_receipt_may_replace_a_receipt(recorded):
    bernstein(recorded, "keys", "new", "op.pem")
    line = ["verify", "run", "ok", "--signing-key-path", "op.pem", "-o", "r.json"]
    assert bernstein(recorded, *line).returncode == 0
    first = (recorded.folder / "r.json").read_bytes()
    again = bernstein(recorded, *line)
    assert again.returncode == 0, again.stderr
    assert first == (recorded.folder / "r.json").read_bytes()


def test_offline_writes_and_starts_nothing(recorded):
    done = bernstein(recorded, "replay", "tampered", "--verify", "--offline")
    assert done.returncode == 1
    assert "first divergent step 1" in done.stdout
    assert sorted(path.name for path in recorded.sdd.iterdir()) == ["runs"]
    assert not (recorded.sdd / "runs" / "tampered" / "divergence_report.json").exists()


def test_a_copied_journal_is_read_where_it_is(recorded, tmp_path):
    copy = tmp_path / "copy.jsonl"
    shutil.copy(recorded.sdd / "runs" / "ok" / "journal.jsonl", copy)
    done = bernstein(recorded, "replay", "--file", copy, "--verify", "--as-json")
    assert (done.returncode, document(done)["count"]) == (0, 4)
    assert (document(done)["run_id"], done.stderr) == ("copy.jsonl", "")
    shown = bernstein(recorded, "replay", "--file", copy, "--as-json")
    assert (document(shown)["run_id"], shown.stderr) == ("copy.jsonl", "")
    folder = bernstein(recorded, "replay", "--file", copy.parent, "--verify")
    assert folder.returncode == 1
    assert "check --file" in folder.stderr


def test_of_a_file_only_what_can_be_done_with_it_is_advised(recorded, tmp_path):
    copy = tmp_path / "a copy.jsonl"
    shutil.copy(recorded.sdd / "runs" / "tampered" / "journal.jsonl", copy)
    bad = bernstein(recorded, "replay", "--file", copy, "--verify")
    assert "in run a copy.jsonl" in bad.stdout
    assert f"`bernstein replay --file '{copy}' --from-step 1`" in bad.stderr
    shutil.copy(recorded.sdd / "runs" / "torn" / "journal.jsonl", copy)
    torn = bernstein(recorded, "replay", "--file", copy, "--verify")
    assert (torn.returncode, "repair" in torn.stderr) == (1, False)
    rederived = bernstein(recorded, "replay", "--file", copy, "--re-derive", "--json")
    assert document(rederived)["run_id"] == "a copy.jsonl"


def test_latest_is_named_where_the_peer_names_it(recorded):
    newest = document(bernstein(recorded, "replay", "latest", "--as-json"))
    assert newest["run_id"] == "z-newest"
    verified = document(bernstein(recorded, "replay", "latest", "--verify", "--as-json"))
    assert verified["run_id"] == "latest"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("replay ok --offline", 0),
        ("replay ok --offline --as-json", 0),
        ("replay tampered --offline --verify", 1),
        ("replay nosuch --offline --json", 1),
        ("replay", 2),
        ("frobnicate", 2),
        ("--help", 0),
    ],
)
def test_a_closed_stream_changes_nothing_but_what_is_read(recorded, line, code, closed):
    program = f'"{sys.executable}" -m bernstein_cli {line} {closed}'
    done = subprocess.run(
        ["sh", "-c", program],
        cwd=recorded.folder,
        env=recorded.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "replay ok --offline",
        "replay ok --offline --json",
        "replay nosuch --offline --json",
        "replay --json",
        "--help",
    ],
)
def test_a_full_device_is_one_line_and_1(recorded, line):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(*line.split()),
            cwd=recorded.folder,
            env=recorded.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith("cannot write the output: No space left on device [STORE_FAILED]")
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_modules_load_is_quiet(recorded, tmp_path):
    # A module that the command loads first, which waits.
    (tmp_path / "click.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(60)\n"
    )
    environ = {**recorded.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command("--help"), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loading\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    # Ended by the system, which a shell tells as 130, too.
    assert (process.returncode, said) == (-signal.SIGINT, b"")


def test_a_state_folder_that_cannot_be_written_names_the_way_out(recorded):
    (recorded.sdd / "svc").write_text("in the way")
    done = bernstein(recorded, "replay", "ok", "--verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--offline" in done.stderr
    assert done.stderr.count("\n") == 1


def test_services_are_started_shown_checked_and_stopped(project):
    assert bernstein(project, "services", "status").stdout == "No services are running.\n"
    made = document(bernstein(project, "services", "init", "--json"))
    assert "PUBLIC KEY" in Path(made["seal_public_key"]).read_text()
    assert bernstein(project, "services", "start", "journal").stdout == "journal runs\n"
    status = document(bernstein(project, "services", "status", "--json"))
    assert [each["service"] for each in status["services"]] == ["journal", "signer"]
    assert all(each["memory_bytes"] > 0 for each in status["services"])
    checked = document(bernstein(project, "services", "doctor", "--json"))
    assert checked["ok"], checked
    assert {"journal", "signer", "peer", "lock"} <= {each["name"] for each in checked["checks"]}
    assert "serving" in bernstein(project, "services", "logs", "journal").stdout
    logged = document(bernstein(project, "services", "logs", "journal", "--json"))
    assert {line["service"] for line in logged["lines"]} == {"journal"}
    assert bernstein(project, "services", "stop").stdout == "The services have ended.\n"
    assert document(bernstein(project, "services", "stop", "--json")) == {"stopped": False}


def test_the_doctor_names_what_is_bad_and_what_to_do(project):
    checked = bernstein(project, "services", "doctor", BERNSTEIN_SVC_PEER="/no/such/peer")
    assert checked.returncode == 1
    assert "bad  peer: " in checked.stdout
    assert "correct or unset BERNSTEIN_SVC_PEER" in checked.stdout


def test_a_key_is_never_overwritten(project):
    assert bernstein(project, "keys", "new", "op.pem").returncode == 0
    before = (project.folder / "op.pem").read_bytes()
    again = bernstein(project, "keys", "new", "op.pem", "--json")
    assert again.returncode == 1
    assert document(again)["error"] == "KEY_UNUSABLE"
    assert before == (project.folder / "op.pem").read_bytes()
    pem = document(bernstein(project, "keys", "public", "op.pem", "--json"))["public_key_pem"]
    assert pem == (project.folder / "op.pub.pem").read_text()


def test_a_reader_that_goes_away_is_no_error(recorded):
    process = subprocess.Popen(
        command("replay", "ok", "--offline"),
        cwd=recorded.folder,
        env=recorded.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        said = stderr.read()
    assert (process.wait(), said) == (141, b"")


def test_control_c_ends_quietly_with_130(project):
    log = project.sdd / "svc" / "logs" / "journal.log"
    log.parent.mkdir(parents=True)
    log.write_text('{"event": "serving"}\n')
    with subprocess.Popen(
        command("services", "logs", "journal", "--follow"),
        cwd=project.folder,
        env=project.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (130, b"")


def test_a_service_that_dies_is_started_again_for_the_next_command(recorded):
    assert bernstein(recorded, "replay", "ok", "--verify").returncode == 0
    status = document(bernstein(recorded, "services", "status", "--json"))
    (journal,) = [each for each in status["services"] if each["service"] == "journal"]
    os.kill(journal["pid"], signal.SIGKILL)
    give_up = time.monotonic() + 10
    while bernstein(recorded, "replay", "ok", "--verify").returncode:
        assert time.monotonic() < give_up
