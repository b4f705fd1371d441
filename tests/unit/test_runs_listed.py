"""Runs as they are listed, by the service and from the files: what is damaged is said."""

import sys

import pytest

from bernstein_cli.local_run import LocalRuns
from bernstein_cli.main import main
from bernstein_journal.retention import Pruner, Reading
from bernstein_journal.runs import Runs
from bernstein_store.files import FileStore

GONE = "it is sealed, and its journal is gone"
ROW = b'{"event": "run_started"}\n'


@pytest.fixture
def sdd(tmp_path):
    """One run of each kind."""
    kinds = {
        "good": {"journal.jsonl": ROW, "seal.json": b"{}", "metadata.json": b"{}"},
        "torn": {"journal.jsonl": ROW + b"{"},
        "gone": {"seal.json": b"{}", "metadata.json": b"{}"},
        "let-go": {"seal.json": b"{}", "run-receipt.json": b"{}"},
        "begun": {"metadata.json": b"{}"},
    }
    for name, files in kinds.items():
        folder = tmp_path / ".sdd" / "runs" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    return tmp_path / ".sdd"


def test_service_and_files_list_a_sealed_run_without_its_journal_as_damaged(sdd):
    wanted = {"good": "", "torn": "the last line is torn", "gone": GONE}
    assert {run.run_id: run.damage for run in LocalRuns(sdd).list_runs()} == wanted
    runs = Runs(FileStore(sdd))
    ids = runs.newest_first() + runs.without_journal()
    assert {run_id: runs.listed(run_id).damage for run_id in ids} == wanted


def test_all_runs_are_ordered_once_for_a_listing_in_pages(tmp_path, monkeypatch):
    store = FileStore(tmp_path)
    for number in range(7):
        store.put(f"runs/run-{number}/journal.jsonl", ROW)
    asked = []

    def start(_, run_id):
        asked.append(run_id)
        return 0.0

    monkeypatch.setattr(Runs, "_start", start)
    runs = Runs(store)

    first, token = runs.page("", 3)
    store.put("runs/run-9/journal.jsonl", ROW)
    second, token = runs.page(token, 3)
    third, token = runs.page(token, 3)

    assert [*first, *second, *third] == [f"run-{number}" for number in range(6, -1, -1)]
    assert token == ""
    assert len(asked) == 7
    assert runs.page("", 1) == (["run-9"], "run-6")
    assert runs.page("not-listed", 1) == (["run-9"], "run-6")


def test_a_run_that_was_let_go_is_not_one_whose_journal_is_gone(sdd):
    store = FileStore(sdd)
    runs = Runs(store)
    pruned = Pruner(store, runs, Reading(), lambda _: True).prune(1, preview=False)
    assert "good" in pruned.removed
    assert runs.without_journal() == ["gone"]


def test_a_list_with_a_damaged_run_in_it_fails(sdd, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    for argv, code in ((["list"], 1), (["torn"], 1), (["good"], 0)):
        command = ["bernstein", "replay", *argv, "--offline", "--sdd-dir", str(sdd)]
        monkeypatch.setattr(sys, "argv", command)
        assert main() == code
    assert GONE in capsys.readouterr().out


def test_latest_is_the_newest_run_for_the_thread_too(sdd, monkeypatch, capsys):
    for name, start in (("good", 1.0), ("newer", 2.0)):
        folder = sdd / "runs" / name
        folder.mkdir(exist_ok=True)
        (folder / "journal.jsonl").write_bytes(b"")
        (folder / "metadata.json").write_text(f'{{"started_at": {start}}}')
    line = ["thread", "verify", "--run", "latest", "--offline", "--sdd-dir", str(sdd)]
    monkeypatch.setattr(sys, "argv", ["bernstein", *line])
    assert main() == 0
    assert "0 steps match" in capsys.readouterr().out
