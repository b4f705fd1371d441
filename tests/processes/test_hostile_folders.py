"""State folders as somebody else may have left them: cut, linked, blocked, copied, unfinished."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bernstein_client.connection import Services
from bernstein_formats.errors import InvalidInput, StoreFailed

pytestmark = pytest.mark.processes


def bernstein(project: Any, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *argv],
        cwd=project.folder,
        env=project.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def made_run(services: Services, *, sealed: bool = True) -> str:
    run_id = services.journal.create_run(metadata=b'{"started_at": 5}')
    services.journal.append_many(run_id, [("a", {}), ("b", {}), ("c", {})])
    if sealed:
        services.journal.finish_run(run_id)
    return run_id


def folder_of(project: Any, run_id: str) -> Path:
    path: Path = project.sdd / "runs" / run_id
    return path


def cut(folder: Path) -> None:
    journal = folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.fixture
def key(project: Any) -> str:
    assert bernstein(project, "keys", "new", "op.pem").returncode == 0
    return "op.pem"


def test_a_sealed_run_that_was_cut_in_place_without_its_seal_is_not_clean(
    project: Any, services: Services
) -> None:
    run_id = made_run(services)
    cut(folder_of(project, run_id))
    (folder_of(project, run_id) / "seal.json").unlink()

    done = bernstein(project, "replay", run_id, "--verify", "--json")

    found = json.loads(done.stdout)
    assert (done.returncode, found["identity"]) == (1, "mismatched")
    assert {each["reason"] for each in found["findings"]} == {"rows_missing", "seal_missing"}


def test_a_sealed_run_is_not_repaired_to_less_when_its_seal_was_removed(
    project: Any, services: Services
) -> None:
    run_id = made_run(services)
    journal = folder_of(project, run_id) / "journal.jsonl"
    torn = journal.read_bytes()[:-40]
    journal.write_bytes(torn)
    (folder_of(project, run_id) / "seal.json").unlink()
    shutil.rmtree(project.sdd / "svc", ignore_errors=True)  # what was acknowledged goes too

    for how in ((), ("--recover",)):
        refused = bernstein(project, "replay", "repair", run_id, *how)

        assert refused.returncode == 2, refused.stderr
        assert "sealed with 3" in refused.stderr
        assert journal.read_bytes() == torn


def test_changed_runs_are_not_pruned(project: Any, services: Services) -> None:
    folders = [folder_of(project, made_run(services)) for _ in range(3)]
    for folder in folders:
        cut(folder)

    done = bernstein(project, "services", "prune", "--keep", "1", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["removed"] == []
    assert all((folder / "journal.jsonl").exists() for folder in folders)


def test_that_the_ledger_is_gone_is_said_where_a_seal_is_missing(
    project: Any, services: Services
) -> None:
    run_id = made_run(services)
    (folder_of(project, run_id) / "seal.json").unlink()
    shutil.rmtree(project.sdd / "lineage", ignore_errors=True)
    (ledger,) = Path(project.environ["HOME"]).rglob("ledger.jsonl")
    ledger.unlink()

    done = bernstein(project, "replay", run_id, "--verify", "--json")

    found = json.loads(done.stdout)
    assert found["identity"] == "unverifiable"
    assert "ledger_missing" in {each["reason"] for each in found["findings"]}
    assert any("whether seals are missing is unknown" in note for note in found["notes"])


def test_a_run_that_never_ended_is_marked_from_its_first_row_and_gets_no_receipt(
    project: Any, services: Services, key: str
) -> None:
    run_id = made_run(services, sealed=False)
    mark = folder_of(project, run_id) / "incomplete.json"
    assert mark.exists()

    verified = bernstein(project, "replay", run_id, "--verify", "--json")
    offline = bernstein(project, "replay", run_id, "--verify", "--json", "--offline")
    refused = bernstein(project, "verify", "run", run_id, "--signing-key-path", key)

    for each in (verified, offline):
        assert "incomplete" in json.loads(each.stdout)["notes"][0]
    assert refused.returncode == 1
    assert "services seal --abandoned" in refused.stderr
    assert not (folder_of(project, run_id) / "run-receipt.json").exists()
    sign = ("verify", "run", run_id, "--signing-key-path", key)
    assert bernstein(project, *sign, "--unfinished").returncode == 0

    assert bernstein(project, "services", "seal", "--abandoned", run_id).returncode == 0
    assert not mark.exists()
    signed = bernstein(project, *sign)
    assert signed.returncode == 0, signed.stderr


def test_a_link_to_a_run_is_that_run(project: Any, services: Services, key: str) -> None:
    run_id = made_run(services)
    sign = ("--signing-key-path", key, "--json")
    first = json.loads(bernstein(project, "verify", "run", run_id, *sign).stdout)
    (project.sdd / "runs" / "alias").symlink_to(run_id)

    again = json.loads(bernstein(project, "verify", "run", "alias", *sign).stdout)

    assert again == first
    assert services.journal.verify_run("alias").identity == "verified"
    assert json.loads(Path(first["receipt_path"]).read_bytes())["run_id"] == run_id


def test_nothing_is_written_through_a_link_inside_of_a_run(
    project: Any, services: Services, key: str
) -> None:
    run_id = made_run(services)
    sign = ("--signing-key-path", key)
    assert bernstein(project, "verify", "run", run_id, *sign).returncode == 0
    before = (folder_of(project, run_id) / "run-receipt.json").read_bytes()
    other = folder_of(project, "other")
    other.mkdir()
    for name in ("journal.jsonl", "run-receipt.json"):
        (other / name).symlink_to(Path("..") / run_id / name)

    done = bernstein(project, "verify", "run", "other", *sign)

    assert done.returncode == 1
    assert "link" in done.stderr
    assert (folder_of(project, run_id) / "run-receipt.json").read_bytes() == before


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_run_that_is_not_what_its_seal_says_gets_no_receipt(
    project: Any, services: Services, key: str, is_renamed: bool
) -> None:
    run_id = made_run(services)
    if is_renamed:
        shutil.copytree(folder_of(project, run_id), folder_of(project, "copy"))
        run_id = "copy"
    cut(folder_of(project, run_id))

    done = bernstein(project, "verify", "run", run_id, "--signing-key-path", key)

    assert done.returncode == 1
    assert ("seal" if is_renamed else "[ROWS_MISSING]") in done.stderr
    assert not (folder_of(project, run_id) / "run-receipt.json").exists()


def test_a_key_file_that_is_not_there_is_wrong_usage(
    project: Any, services: Services, key: str
) -> None:
    run_id = made_run(services)
    (project.folder / "bad.pem").write_text("no key")
    codes = [
        bernstein(project, "verify", "run", run_id, "--signing-key-path", name).returncode
        for name in ("nope.pem", "bad.pem", key)
    ]
    assert codes == [2, 1, 0]


def test_a_state_larger_than_a_message_is_given_whole(services: Services) -> None:
    run_id = services.journal.create_run()
    for _ in range(6):
        services.journal.append(run_id, "y" * 900_000, {})

    found, state = services.journal.rebuild_state(run_id, 5)

    assert found == run_id
    assert state["step_count"] == 5
    assert len(json.dumps(state)) > 4 * 1024 * 1024


def block(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
        return
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path may have 107 bytes only
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
    os.chdir(here)


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(
    project: Any, services: Services, key: str, kind: str
) -> None:
    good, bad = made_run(services), made_run(services)
    block(folder_of(project, bad) / "journal.jsonl", kind)
    for name in ("plan.yaml", "receipt.json"):
        block(project.folder / name, kind)
    for argv in (
        ("replay", bad),
        ("replay", bad, "--verify"),
        ("replay", bad, "--verify", "--offline"),
        ("replay", "--file", f".sdd/runs/{bad}/journal.jsonl", "--verify"),
        ("verify", "run", bad, "--signing-key-path", key),
        ("verify", "receipt", "receipt.json"),
        ("run", "plan.yaml"),
    ):
        done = bernstein(project, *argv)
        assert done.returncode == 1, argv
        assert "not a regular file" in done.stderr + done.stdout, argv
    for where in ((), ("--offline",)):
        listed = bernstein(project, "replay", "list", "--json", *where)
        assert listed.returncode == 1, listed.stderr
        damage = {each["run_id"]: each["damage"] for each in json.loads(listed.stdout)["runs"]}
        assert damage[good] is None
        assert "not a regular file" in damage[bad]


def test_one_journal_that_cannot_be_read_leaves_the_others_in_the_list(
    project: Any, services: Services
) -> None:
    good, bad = made_run(services), made_run(services)
    (folder_of(project, bad) / "journal.jsonl").unlink()
    (folder_of(project, bad) / "journal.jsonl").mkdir()
    for where in ((), ("--offline",)):
        listed = json.loads(bernstein(project, "replay", "list", "--json", *where).stdout)["runs"]
        assert {each["run_id"] for each in listed if each["damage"]} == {bad}
        assert good in {each["run_id"] for each in listed}


def test_a_place_that_cannot_be_written_is_refused_before_a_run_exists(
    project: Any, services: Services
) -> None:
    services.places.secrets_dir.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(services.places.secrets_dir, ignore_errors=True)
    services.places.secrets_dir.write_text("in the way")
    with pytest.raises((StoreFailed, InvalidInput)):
        services.journal.create_run()
    services.places.secrets_dir.unlink()
    assert not (project.sdd / "runs").exists()
