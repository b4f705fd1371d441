"""`bernstein import` with real services: verbatim, repeatable, following, and never the source."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bernstein_importer.importer import Importer
from bernstein_importer.source import find_source
from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
REAL_RUN = Path(__file__).parents[1] / "vectors" / "data" / "real-run" / "sdd"
RUN_ID = "20261130-163229"


def bernstein(project: Any, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=project.folder,
        env={**project.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def imported(project: Any, source: Path, *arguments: str, expect: int = 0) -> dict[str, Any]:
    """What an import says of each run."""
    done = bernstein(project, "import", str(source), "--json", *arguments)
    assert done.returncode == expect, done.stderr
    return {run["run_id"]: run for run in json.loads(done.stdout)["runs"]}


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file's bytes and time of change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A peer's project, with the run that it really made."""
    folder = tmp_path / "peer"
    shutil.copytree(REAL_RUN, folder / ".sdd")
    return folder


@pytest.fixture
def recorded(tmp_path: Path, project: Any) -> Path:
    """A project of ours beside, with one recorded run; its services are ended."""
    folder = tmp_path / "recorded"
    copy_example(folder)
    with ModelServer() as model:
        done = bernstein(
            project,
            "run",
            str(folder / "plan.yaml"),
            "--workdir",
            str(folder),
            BERNSTEIN_DETERMINISTIC_SEED="1",
            BERNSTEIN_RUN_ID="r1",
            OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY="unused",
        )
    assert done.returncode == 0, done.stderr
    bernstein(project, "services", "stop", "--sdd-dir", str(folder / ".sdd"))
    return folder


def test_a_peers_tree_arrives_byte_for_byte_and_its_source_is_not_touched(
    project: Any, source: Path
) -> None:
    before = files(source)
    found = imported(project, source)
    assert files(source) == before
    assert {run["status"] for run in found.values()} == {"new"}
    assert found[RUN_ID]["rows"] == 57
    for name, (content, _) in before.items():
        assert (project.folder / name).read_bytes() == content


def test_importing_again_adds_nothing(project: Any, source: Path) -> None:
    first = imported(project, source)
    second = imported(project, source / ".sdd")
    assert first.keys() == second.keys()
    assert {run["status"] for run in second.values()} == {"up to date"}
    assert sum(run["new_bytes"] for run in second.values()) == 0
    assert [run["rows"] for run in second.values()] == [run["rows"] for run in first.values()]


def test_verify_re_derive_and_receipts_work_on_an_imported_run(project: Any, source: Path) -> None:
    imported(project, source, "--run", RUN_ID)
    assert bernstein(project, "replay", "list").stdout.count("20261130") == 1
    verified = bernstein(project, "replay", RUN_ID, "--verify", "--as-json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["chain_consistent"] is True
    rederived = bernstein(project, "replay", RUN_ID, "--re-derive", "--as-json")
    assert rederived.returncode == 1
    answer = json.loads(rederived.stdout)
    assert answer["reason_code"] == "underivable_step"
    assert {each["reason"] for each in answer["findings"]} == {"retry_under_new_id"}
    offline = bernstein(project, "replay", RUN_ID, "--re-derive", "--as-json", "--offline")
    assert json.loads(offline.stdout)["findings"] == answer["findings"]
    said = bernstein(project, "replay", RUN_ID, "--re-derive").stdout
    assert "but for these rows the schedule follows the rules" in said
    assert bernstein(project, "keys", "new", "key.pem").returncode == 0
    signed = bernstein(project, "verify", "run", RUN_ID, "--signing-key-path", "key.pem")
    assert signed.returncode == 0, signed.stderr
    receipt = project.sdd / "runs" / RUN_ID / "run-receipt.json"
    checked = bernstein(
        project, "verify", "receipt", str(receipt), "--public-key", "key.pub.pem", "--json"
    )
    assert (checked.returncode, json.loads(checked.stdout)["tier"]) == (0, "provenance")


def test_a_recorded_run_can_be_replayed_where_it_was_imported(project: Any, recorded: Path) -> None:
    found = imported(project, recorded)
    assert (found["r1"]["calls"], found["r1"]["status"]) == (4, "new")
    copy_example(project.folder)
    replayed = bernstein(project, "run", "plan.yaml", BERNSTEIN_REPLAY_RUN_ID="r1")
    assert replayed.returncode == 0, replayed.stderr
    assert "head equals the recorded head: " in replayed.stdout


def test_a_torn_tail_waits_and_the_rest_of_it_is_taken_later(project: Any, source: Path) -> None:
    path = source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    run = imported(project, source, "--run", RUN_ID)[RUN_ID]
    last_line = len(whole.splitlines(keepends=True)[-1])
    assert (run["rows"], run["torn_bytes"]) == (56, last_line - 10)
    path.write_bytes(whole)
    run = imported(project, source, "--run", RUN_ID)[RUN_ID]
    assert (run["status"], run["rows"], run["new_bytes"]) == ("extended", 57, last_line)
    assert (project.sdd / "runs" / RUN_ID / "journal.jsonl").read_bytes() == whole


@pytest.mark.parametrize("spoil", ["rewritten", "cut"])
def test_a_source_that_was_rewritten_or_cut_is_named_and_the_others_go_on(
    project: Any, source: Path, spoil: str
) -> None:
    imported(project, source)
    ours = files(project.sdd / "runs")
    path = source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"mock"', b'"MOCK"') if spoil == "rewritten" else data[:900])
    found = imported(project, source, expect=1)
    assert found[RUN_ID]["status"] == "failed"
    reason = "RUN_EXISTS" if spoil == "rewritten" else "FOREIGN_WRITER"
    assert found[RUN_ID]["reason"] == reason
    assert str(path) in found[RUN_ID]["error"]
    assert {run["status"] for name, run in found.items() if name != RUN_ID} == {"up to date"}
    assert files(project.sdd / "runs") == ours


def test_another_run_of_the_same_id_is_refused(project: Any, source: Path, tmp_path: Path) -> None:
    imported(project, source)
    other = tmp_path / "other"
    (other / "runs" / RUN_ID).mkdir(parents=True)
    journal = source / ".sdd" / "runs" / "task-24209e1293e1" / "journal.jsonl"
    shutil.copy(journal, other / "runs" / RUN_ID / "journal.jsonl")
    found = imported(project, other, expect=1)
    assert found[RUN_ID]["reason"] in {"RUN_EXISTS", "FOREIGN_WRITER"}
    assert "--sdd-dir" in found[RUN_ID]["error"] or "what is here stays" in found[RUN_ID]["error"]


def test_the_same_id_with_other_metadata_is_another_run(project: Any, source: Path) -> None:
    metadata = source / ".sdd" / "runs" / RUN_ID / "metadata.json"
    metadata.write_text('{"run_id": "x", "started_at": 1.5}')
    assert imported(project, source, "--run", RUN_ID)[RUN_ID]["status"] == "new"
    stored = project.sdd / "runs" / RUN_ID / "metadata.json"
    assert stored.read_bytes() == metadata.read_bytes()
    metadata.write_text('{"run_id": "x", "started_at": 2.5}')
    found = imported(project, source, "--run", RUN_ID, expect=1)
    assert found[RUN_ID]["reason"] == "RUN_EXISTS"


def test_links_that_leave_the_folder_and_folders_that_are_no_runs(
    project: Any, source: Path, tmp_path: Path
) -> None:
    runs = source / ".sdd" / "runs"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "journal.jsonl").write_bytes(b"{}\n")
    (runs / "leaves").symlink_to(outside)
    (runs / "empty").mkdir()
    (runs / "no run id").mkdir()
    (runs / "no run id" / "journal.jsonl").write_bytes(b"{}\n")
    (runs / "latest").mkdir()
    (runs / "latest" / "journal.jsonl").write_bytes(b"{}\n")
    found = imported(project, source, expect=1)
    failed = {name: run["reason"] for name, run in found.items() if run["status"] == "failed"}
    assert failed == dict.fromkeys(("leaves", "no run id", "latest"), "INVALID_INPUT")
    assert "empty" not in found
    assert not (project.sdd / "runs" / "leaves").exists()


def test_a_sealed_run_is_not_extended(project: Any, source: Path) -> None:
    imported(project, source, "--run", RUN_ID)
    with project.services() as services:
        services.journal.finish_run(RUN_ID)
    journal = source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    with journal.open("ab") as file:
        file.write(b"{}\n")
    found = imported(project, source, "--run", RUN_ID, expect=1)
    assert found[RUN_ID]["reason"] == "RUN_SEALED"


def test_what_cannot_be_imported_at_all_gives_one_line(project: Any, source: Path) -> None:
    for arguments in (
        ("nowhere",),
        (".",),
        (str(source), "--run", "not-there"),
        (str(source), "--run", "../x"),
        (str(source), "--sdd-dir", str(source / ".sdd")),
        (str(source), "--sdd-dir", "no/such/folder"),
    ):
        done = bernstein(project, "import", *arguments)
        assert done.returncode == 1, arguments
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr


def test_following_takes_what_is_added_until_ctrl_c(project: Any, source: Path) -> None:
    path = source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0])
    process = subprocess.Popen(
        [sys.executable, "-m", "bernstein_cli", "import", "--follow", str(source), "--run", RUN_ID],
        cwd=project.folder,
        env={**project.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{RUN_ID}: new: 1 rows")
    with path.open("ab") as file:
        file.write(lines[1] + lines[2][:20])
    assert "2 rows" in process.stdout.readline()
    with path.open("ab") as file:
        file.write(lines[2][20:] + b"".join(lines[3:]))
    assert "57 rows" in process.stdout.readline()
    new = source / ".sdd" / "lineage" / RUN_ID
    new.mkdir()
    shutil.copy(source / ".sdd/lineage/task-24209e1293e1/spine.jsonl", new)
    assert "1 spine rows" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "")
    assert "Traceback" not in stderr
    assert (project.sdd / "runs" / RUN_ID / "journal.jsonl").read_bytes() == whole


def test_following_goes_on_after_a_failure_and_tells_it_once(project: Any, source: Path) -> None:
    """Driven by hand, one look at a time, so that nothing depends on how fast it is."""
    path = source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    whole = path.read_bytes()
    with project.services() as services:
        importer = Importer(find_source(source), services, RUN_ID)
        assert [each.status.value for each in importer.import_all()] == ["new"]
        assert list(importer.import_all()) == []
        path.write_bytes(b'{"other": 1}\n' + whole)
        assert [each.reason for each in importer.import_all()] == ["FOREIGN_WRITER"]
        assert list(importer.import_all()) == []
        path.write_bytes(whole)
        assert [each.status.value for each in importer.import_all()] == ["up to date"]


def test_an_import_goes_on_after_the_journal_was_killed(project: Any, source: Path) -> None:
    with project.services() as services:
        importer = Importer(find_source(source), services)
        first = next(iter(importer.import_all()))
        assert first.run_id == RUN_ID
        status = services.supervisor.ask({"do": "status"})
        assert status is not None
        pid = next(each["pid"] for each in status["services"] if each["service"] == "journal")
        subprocess.run(["kill", "-9", str(pid)], check=True)
        outcomes = list(importer.import_all())
    assert {each.status.value for each in outcomes} == {"new"}
    assert len(outcomes) == 12
    assert (project.sdd / "runs" / RUN_ID / "journal.jsonl").read_bytes() == (
        source / ".sdd" / "runs" / RUN_ID / "journal.jsonl"
    ).read_bytes()
