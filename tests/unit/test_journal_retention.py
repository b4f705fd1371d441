"""Letting runs go: only old, sealed, unread ones, links never followed, what proves them stays."""

import json
from pathlib import Path

import pytest

from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput
from bernstein_journal.retention import Pruner, Reading
from bernstein_journal.runs import Runs
from bernstein_store.files import FileStore


@pytest.fixture
def sdd(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / ".sdd"
    folder.mkdir(parents=True)
    return folder


def make_run(
    sdd: Path, run_id: str, ts: float, *, sealed: bool = True, replay_of: str = ""
) -> Path:
    folder = sdd / paths.run_folder(run_id)
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text(json.dumps({"ts": ts}) + "\n")
    (folder / "llm_calls.jsonl").write_text("{}\n")
    (folder / "review" / "diffs").mkdir(parents=True)
    (folder / "review" / "diffs" / "t.diff").write_text("x")
    if sealed:
        (folder / "seal.json").write_text("{}")
        (folder / "run-receipt.json").write_text("{}")
    if replay_of:
        (folder / "replay.json").write_text(json.dumps({"replay_of": replay_of}))
    return folder


def pruner(sdd: Path, reading: Reading | None = None, changed: str = "") -> Pruner:
    store = FileStore(sdd)
    return Pruner(store, Runs(store), reading or Reading(), lambda run_id: run_id != changed)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_oldest_runs_go_by_their_recorded_start_and_not_by_their_names(sdd: Path) -> None:
    old = make_run(sdd, "z-old", 1.0)
    new = make_run(sdd, "a-new", 9.0)

    pruned = pruner(sdd).prune(1, preview=False)

    assert (pruned.removed, pruned.kept, pruned.left_count) == (("z-old",), (), 1)
    assert names(old) == ["run-receipt.json", "seal.json"]
    assert "journal.jsonl" in names(new)


def test_a_preview_removes_nothing_and_says_the_same(sdd: Path) -> None:
    folders = [make_run(sdd, f"r{number}", float(number)) for number in range(4)]
    before = [names(folder) for folder in folders]

    preview = pruner(sdd).prune(2, preview=True)

    assert [names(folder) for folder in folders] == before
    assert pruner(sdd).prune(2, preview=False) == preview
    assert preview.removed == ("r0", "r1")


def test_a_run_that_is_not_what_was_sealed_stays_as_evidence(sdd: Path) -> None:
    folder = make_run(sdd, "r0", 0.0)
    make_run(sdd, "r1", 1.0)

    pruned = pruner(sdd, changed="r0").prune(1, preview=False)

    assert pruned.removed == ()
    ((run_id, reason),) = pruned.kept
    assert (run_id, "not what was sealed" in reason) == ("r0", True)
    assert "journal.jsonl" in names(folder)


def test_zero_keeps_everything(sdd: Path) -> None:
    make_run(sdd, "r1", 1.0)
    assert pruner(sdd).prune(0, preview=False).removed == ()


def test_a_run_that_is_written_read_or_needed_by_a_replay_stays(sdd: Path) -> None:
    make_run(sdd, "unsealed", 1.0, sealed=False)
    make_run(sdd, "read", 2.0)
    make_run(sdd, "replayed", 3.0)
    make_run(sdd, "free", 4.0)
    make_run(sdd, "replay", 9.0, sealed=False, replay_of="replayed")
    reading = Reading()

    with reading.of("read"):
        pruned = pruner(sdd, reading).prune(1, preview=False)

    assert pruned.removed == ("free",)
    assert dict(pruned.kept) == {
        "unsealed": "it is not sealed",
        "read": "it is being read",
        "replayed": "a replay of it is not finished",
    }
    assert pruner(sdd, reading).prune(1, preview=True).removed == ("read",)


def test_links_are_removed_and_never_followed(sdd: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("precious")
    folder = make_run(sdd, "old", 1.0)
    (folder / "link").symlink_to(outside)
    (folder / "review" / "link").symlink_to(outside)
    (folder / "file-link").symlink_to(outside / "precious.txt")
    make_run(sdd, "new", 2.0)

    assert pruner(sdd).prune(1, preview=False).removed == ("old",)

    assert names(folder) == ["run-receipt.json", "seal.json"]
    assert (outside / "precious.txt").read_text() == "precious"


def test_a_run_whose_folder_is_a_link_stays(sdd: Path) -> None:
    real = make_run(sdd, "real", 5.0)
    (sdd / "runs" / "alias").symlink_to("real")
    make_run(sdd, "newest", 9.0)

    pruned = pruner(sdd).prune(1, preview=False)

    assert pruned.kept == (("alias", "its folder is a link"),)
    assert pruned.removed == ("real",)
    assert names(real) == ["run-receipt.json", "seal.json"]
    with pytest.raises(InvalidInput, match="link"):
        FileStore(sdd).remove_run("alias", (), "journal.jsonl")


def test_a_folder_without_a_journal_is_not_a_run_and_stays(sdd: Path) -> None:
    (sdd / "runs" / "0old").mkdir(parents=True)
    make_run(sdd, "new", 2.0)

    assert pruner(sdd).prune(1, preview=False).removed == ()
    assert (sdd / "runs" / "0old").is_dir()


def test_the_journal_goes_last_so_that_a_run_half_removed_is_removed_again(sdd: Path) -> None:
    folder = make_run(sdd, "old", 1.0)
    make_run(sdd, "new", 2.0)
    removed: list[str] = []
    real = Path.unlink
    with pytest.MonkeyPatch.context() as patch:

        def unlink(path: Path) -> None:
            removed.append(path.name)
            real(path)

        patch.setattr(Path, "unlink", unlink)
        pruner(sdd).prune(1, preview=False)

    assert removed[-1] == "journal.jsonl"
    assert names(folder) == ["run-receipt.json", "seal.json"]
