"""Work trees: what is kept of them, and that they come back as they were."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_agent import work_tree
from bernstein_agent.work_tree import keep, put_up
from bernstein_formats.agent_environment import Change, Kind
from bernstein_formats.errors import EnvironmentChanged, StoreFailed


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A commit; beside it a change, a new file, a removed, an ignored one, and a state folder."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    git(folder.parent, "init", "-q", "-b", "trunk", "project")
    (folder / ".gitignore").write_text("built/\n")
    (folder / "sub" / "kept.txt").write_text("kept\n")
    (folder / "edited.txt").write_text("before\n")
    (folder / "removed.txt").write_text("removed\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "edited.txt").write_text("edited\n")
    (folder / "removed.txt").unlink()
    (folder / "new ü.sh").write_text("#!/bin/sh\n")
    (folder / "new ü.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/kept.txt")
    (folder / "built").mkdir()
    (folder / "built" / "out").write_text("built\n")
    (folder / ".sdd" / "runs").mkdir(parents=True)
    (folder / ".sdd" / "runs" / "secret").write_text("evidence\n")
    return folder


def listed(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def test_a_repository_comes_back_as_it_was_however_it_went_on(
    repository: Path, tmp_path: Path
) -> None:
    before, status = listed(repository), git(repository, "status", "--porcelain")
    head = git(repository, "rev-parse", "HEAD")
    kept = keep(repository / "sub")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two")
    (repository / "sub" / "kept.txt").write_text("another\n")
    (repository / "later.txt").write_text("later\n")

    target = tmp_path / "fresh" / "tree"
    put_up(kept.tree, kept.contents, repository, target)
    assert listed(target) == {name: text for name, text in before.items() if ".sdd" not in name}
    assert git(target, "rev-parse", "HEAD") == head
    assert git(target, "symbolic-ref", "--short", "HEAD") == "trunk"
    assert git(target, "log", "--format=%s") == "one"
    assert (target / "link").readlink() == Path("sub/kept.txt")
    assert (target / "new ü.sh").stat().st_mode & 0o100
    assert list((target / ".sdd").iterdir()) == []
    assert git(target, "status", "--porcelain") == status.replace("?? .sdd/\n", "")
    assert git(repository, "log", "--format=%s") == "two\none"


def test_a_commit_that_is_gone_is_named(repository: Path, tmp_path: Path) -> None:
    kept = keep(repository)
    (tmp_path / "other").mkdir()
    with pytest.raises(EnvironmentChanged, match=kept.tree.commit[:12]):
        put_up(kept.tree, kept.contents, tmp_path / "other", tmp_path / "fresh")


def test_a_plain_folder_is_kept_whole(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c.txt").write_text("c")
    (folder / ".sdd").mkdir()
    (folder / ".sdd" / "x").write_text("evidence")
    kept = keep(folder)
    (folder / "a" / "b" / "c.txt").unlink()
    put_up(kept.tree, kept.contents, folder, tmp_path / "fresh")
    assert kept.tree.changes == (Change("a/b/c.txt", Kind.FILE, 1),)
    assert listed(tmp_path / "fresh") == {"a/b/c.txt": "c"}


def test_what_is_too_much_is_not_kept_and_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_tree, "KEPT_FILES_MAX", 1)
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    kept = keep(folder)
    put_up(kept.tree, kept.contents, folder, tmp_path / "fresh")
    assert (kept.tree.is_kept, kept.contents) == (False, b"")
    assert listed(tmp_path / "fresh") == {"a": "a", "b": "b"}


def test_no_recorded_file_is_written_behind_a_link(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = str(outside).encode()
    changes = (Change("out", Kind.LINK, len(link)), Change("out/x", Kind.FILE, 1))
    kept = keep(repository)
    hostile = replace(kept.tree, changes=changes)
    with pytest.raises(StoreFailed, match="behind a link"):
        put_up(hostile, link + b"x", repository, tmp_path / "fresh")
    assert list(outside.iterdir()) == []
