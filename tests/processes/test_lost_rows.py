"""Evidence that was acknowledged and is gone: whoever asks is told, online and offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bernstein_client.steps import Step
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import ForeignWriter, RowsMissing, RunSealed
from bernstein_formats.spine import SpineFields

pytestmark = pytest.mark.processes

KEY = "5f" * 32
DIGEST = "a" * 64
STEPS = "runtime/journal/agent/000000.jsonl"


@pytest.fixture(autouse=True)
def key(project) -> None:
    path = Path(project.environ["HOME"], ".local/state/bernstein/audit.key")
    path.parent.mkdir(parents=True)
    path.write_text(KEY)
    path.chmod(0o600)


def bernstein(project, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *words],
        cwd=project.folder, env=dict(project.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip


def sealed(services, run_id: str = "r1") -> None:
    services.journal.create_run(run_id)
    for number in range(3):
        services.journal.append(run_id, "x", {"n": number})
    assert services.journal.finish_run(run_id).notes == ()


def cut_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def findings(project, *options: str) -> set[tuple[str, str | None]]:
    """Of run r1, which fails for them alone."""
    done = bernstein(project, "replay", "r1", "--verify", "--json", *options)
    found = json.loads(done.stdout)
    named = {(each["reason"], each["member"]) for each in found["findings"]}
    assert done.returncode == (1 if named or found["identity"] == "mismatched" else 0)
    return named


def both(project) -> list[set[tuple[str, str | None]]]:
    return [findings(project), findings(project, "--offline")]


def test_a_deleted_spine_is_a_finding(project, services):
    sealed(services)
    assert both(project) == [set(), set()]
    (project.sdd / "lineage/r1/spine.jsonl").unlink()
    assert both(project) == [{("rows_missing", "spine")}] * 2
    assert services.macs.verify_spine("r1").status == "tampered"
    with pytest.raises(RowsMissing):
        services.macs.append_spine_entry("r1", SpineFields("p", "sha256:0", "a", "s", "", 0))


def test_a_run_that_never_had_a_spine_misses_none(project, services):
    services.journal.create_run("r1")
    services.journal.append("r1", "x", {})
    Path(project.environ["HOME"], ".local/state/bernstein/audit.key").unlink()
    assert services.journal.finish_run("r1").notes
    assert both(project) == [set(), set()]


def test_a_cut_audit_log_is_a_finding_and_nothing_is_signed_over_it(project, services):
    sealed(services)
    for number in range(2):
        services.macs.append_audit_event(AuditFields("x", "a", "task", f"T-{number}"))
    (segment,) = (project.sdd / "audit").glob("*.jsonl")
    cut_last_line(segment)
    assert both(project) == [{("rows_missing", "audit log")}] * 2
    assert "acknowledged" in services.macs.verify_audit_log().error
    assert bernstein(project, "keys", "new", "k.pem").returncode == 0
    window = ["--audit-since", "2020-01-01T00:00:00Z", "--audit-until", "2100-01-01T00:00:00Z"]
    sign = ["verify", "run", "r1", "--signing-key-path", "k.pem"]
    done = bernstein(project, *sign, "--include-audit-range", *window)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("[ROWS_MISSING]"), done.stderr
    assert bernstein(project, *sign).returncode == 0


def test_a_cut_journal_that_was_not_sealed_yet_is_a_finding_and_is_not_sealed(project, services):
    services.journal.create_run("r1")
    for number in range(3):
        services.journal.append("r1", "x", {"n": number})
    cut_last_line(project.sdd / "runs/r1/journal.jsonl")
    assert both(project) == [{("rows_missing", "journal")}] * 2
    with pytest.raises(RowsMissing):
        services.journal.finish_run("r1")


def test_a_deleted_seal_is_a_finding_and_the_run_stays_finished(project, services):
    sealed(services)
    sealed(services, "r2")  # so that the newest seal is another run's
    (project.sdd / "runs/r1/seal.json").unlink()
    assert both(project) == [{("seal_missing", None)}] * 2
    with pytest.raises(RunSealed):
        services.journal.append("r1", "x", {})


def test_an_older_seal_is_a_finding_offline_too(project, services):
    sealed(services)
    seal = project.sdd / "runs/r1/seal.json"
    checkpoint = json.loads((project.sdd / "svc/checkpoint.json").read_bytes())
    assert checkpoint == json.loads(seal.read_bytes())
    seal.unlink()
    (project.sdd / "svc/seals/r1.json").unlink()
    assert findings(project, "--offline") == {("seal_missing", None)}


def test_a_spine_that_names_another_head_contradicts_offline(project, services):
    sealed(services)
    (project.sdd / "runs/r1/seal.json").unlink()
    cut_last_line(project.sdd / "runs/r1/journal.jsonl")
    done = bernstein(project, "replay", "r1", "--verify", "--json", "--offline")
    found = json.loads(done.stdout)
    assert (done.returncode, found["identity"]) == (1, "mismatched")
    assert any("the seal in the spine" in error for error in found["errors"])


def test_a_ledger_that_is_gone_is_a_finding(project, services):
    sealed(services)
    ledger = next(Path(project.environ["HOME"]).rglob("ledger.jsonl"))
    services.supervisor.ask({"do": "stop"})
    ledger.rename(ledger.with_name("away"))
    assert findings(project) == {("ledger_missing", None)}
    (project.sdd / "runs/r1/seal.json").unlink()
    assert findings(project) == {("ledger_missing", None), ("seal_missing", None)}


def test_an_older_copy_of_the_ledger_is_a_finding(project, services):
    sealed(services)
    ledger = next(Path(project.environ["HOME"]).rglob("ledger.jsonl"))
    older = ledger.read_bytes()
    sealed(services, "r2")
    services.supervisor.ask({"do": "stop"})
    ledger.write_bytes(older)
    (project.sdd / "runs/r2/seal.json").unlink()
    (project.sdd / "svc/seals/r2.json").unlink()
    done = bernstein(project, "replay", "r2", "--verify", "--json")
    named = {each["reason"] for each in json.loads(done.stdout)["findings"]}
    assert (done.returncode, named) == (1, {"ledger_missing", "seal_missing"})


def test_steps_that_are_gone_are_told_to_everybody_who_asks(project, services):
    def step(number: int) -> Step:
        return Step(DIGEST, model="m", prompt=f"p{number}")

    services.steps.start("agent", [step(0)])
    services.steps.append("agent", [step(1)])
    services.steps.start("other", [step(0)])
    cut_last_line(project.sdd / STEPS)
    for words in (
        ["agent"],
        ["export", "agent", "out.tar"],
        ["publish", "agent", "out.tar", "--opt-in"],
        ["diff-journal", "other", "agent"],
        ["debug", "agent"],
        ["debug", "other", "agent"],
    ):
        done = bernstein(project, "replay", *words, "--json")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), words
        assert "bytes were acknowledged" in json.loads(done.stdout)["detail"]
    assert not (project.folder / "out.tar").exists()
    with pytest.raises(ForeignWriter):
        services.steps.append("agent", [step(2)])


@pytest.mark.parametrize("how", ["cut", "emptied", "deleted", "folder deleted"])
def test_steps_that_are_gone_are_told_by_whoever_reads_the_files(project, services, how):
    step = Step(DIGEST, model="m", prompt="p")
    services.steps.start("agent", [step, step])
    services.steps.start("other", [step])
    path = project.sdd / STEPS
    (project.sdd / "runtime/sessions").mkdir(parents=True, exist_ok=True)
    (project.sdd / "runtime/sessions/agent.json").write_text('{"session_id": "agent"}')
    if how == "cut":
        cut_last_line(path)
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
    if how == "folder deleted":
        path.parent.rmdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], cwd=project.folder, check=True)
    for words in (
        ["replay", "agent", "--offline"],
        ["replay", "export", "agent", "out.tar", "--offline"],
        ["replay", "publish", "agent", "out.tar", "--opt-in", "--offline"],
        ["replay", "publish", "agent", "--preview", "--offline"],
        ["replay", "diff-journal", "other", "agent", "--offline"],
        ["replay", "debug", "agent", "--offline"],
        ["session", "branches", "agent"],
        ["session", "branches", "agent", "--copy", "", "--to", "copy"],
        ["session", "fork", "agent", "--from-step", "0"],
    ):
        done = bernstein(project, *words, "--json")
        assert done.returncode == 1, (words, done)
        assert "bytes were acknowledged" in done.stderr, words
        assert json.loads(done.stdout), words
    assert not (project.folder / "out.tar").exists()
    assert not (project.sdd / "worktrees").exists()
    assert not (project.sdd / "runtime/journal/copy").exists()


@pytest.mark.parametrize("member", ["spine", "audit log"])
@pytest.mark.parametrize("put", ["link", "pipe", "folder"])
def test_a_log_that_cannot_be_read_any_more_is_a_finding(project, services, tmp_path, member, put):
    sealed(services)
    services.macs.append_audit_event(AuditFields("x", "a", "task", "T-0"))
    (segment,) = (project.sdd / "audit").glob("*.jsonl")
    path = segment if member == "audit log" else project.sdd / "lineage/r1/spine.jsonl"
    path.rename(tmp_path / "moved")
    if put == "link":
        path.symlink_to(tmp_path / "moved")
    elif put == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert both(project) == [{("rows_missing", member)}] * 2


def test_what_is_left_is_gone_on_with_once_the_loss_is_on_record(project, services):
    sealed(services)
    services.macs.append_audit_event(AuditFields("x", "a", "task", "T-0"))
    (segment,) = (project.sdd / "audit").glob("*.jsonl")
    segment.unlink()
    (project.sdd / "lineage/r1/spine.jsonl").unlink()
    for words in (["--audit"], ["--spine", "r1"]):
        done = bernstein(project, "services", "accept-loss", *words, "--why", "disk died", "--json")
        assert done.returncode == 0, done.stderr
        (lost,) = json.loads(done.stdout)["lost"]
        assert "0 are there" in lost

    rows = [json.loads(line) for line in segment.read_bytes().splitlines()]
    assert [(row["event_type"], row["details"]["why"]) for row in rows] == [
        ("log.loss_accepted", "disk died"),
        ("log.loss_accepted", "disk died"),
    ]
    assert services.macs.verify_audit_log().error == ""
    assert services.journal.finish_run("r1").notes == ()  # the seal in the spine is made again
    assert both(project) == [set(), set()]
    for options in ([], ["--offline"]):
        done = bernstein(project, "replay", "r1", "--verify", "--json", *options)
        notes = json.loads(done.stdout)["notes"]
        assert sum("a loss was accepted" in note for note in notes) == 2


@pytest.mark.parametrize("words", [[], ["--audit", "--spine", "r1"], ["--steps", "a/b"]])
def test_one_log_is_named_and_why(project, words):
    done = bernstein(project, "services", "accept-loss", *words, "--why", "x")
    assert (done.returncode, "Traceback" in done.stderr) == (1 if "a/b" in words else 2, False)


def test_nothing_is_accepted_where_nothing_is_missing(project, services):
    sealed(services)
    done = bernstein(project, "services", "accept-loss", "--spine", "r1", "--why", "x")
    assert (done.returncode, done.stdout) == (0, "nothing is missing\n")
    assert not (project.sdd / "svc/losses.jsonl").exists()


@pytest.mark.parametrize("options", [[], ["--offline"]])
def test_whether_the_seals_key_is_pinned_is_said_and_can_be_demanded(project, services, options):
    sealed(services)
    ask = ["replay", "r1", "--verify", "--require-provenance", *options]
    done = bernstein(project, *ask, "--json")
    assert (done.returncode, json.loads(done.stdout)["pinned_key"]) == (0, True)
    assert "\npinned: " in bernstein(project, *ask).stdout
    copied = ["--file", ".sdd/runs/r1"]
    done = bernstein(project, *ask, *copied, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["pinned_key"], found["identity"]) == (3, False, "verified")
    assert "\nnot pinned: " in bernstein(project, *ask, *copied).stdout
    (project.sdd / "runs/r1/seal.json").unlink()
    found = json.loads(bernstein(project, *ask, *copied, "--json").stdout)
    assert found["pinned_key"] is None
    assert bernstein(project, *ask, *copied).returncode == 3
