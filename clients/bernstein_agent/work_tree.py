"""The files around an agent: kept when it is recorded, put up again in a fresh place for a replay.

In a repository the commit stays where it is, and what differs from it is kept; a plain folder is
kept whole. What git ignores is taken as it is today.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_formats.agent_environment import Change, Kind, WorkTree
from bernstein_formats.errors import EnvironmentChanged, StoreFailed
from bernstein_formats.http_exchange import body_of

KEPT_FILES_MAX: Final = 2000
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
_STATE: Final = ".sdd"
_GIT: Final = ".git"
_MODES: Final = {Kind.FILE: 0o644, Kind.PROGRAM: 0o755}


@dataclass(frozen=True, slots=True)
class Kept:
    """A work tree, and the contents of its changed files one behind the other."""

    tree: WorkTree
    contents: bytes


def keep(folder: Path) -> Kept:
    """What a replay needs of the files around `folder`. Raises StoreFailed."""
    top = top_of(folder)
    commit = _git_text(top, "rev-parse", "--verify", "-q", "HEAD") if top else ""
    root = top or folder
    names = _changed(root) if commit else _all_files(root)
    changes, parts = [], []
    left_files, left_bytes = KEPT_FILES_MAX, KEPT_BYTES_MAX
    for name in names:
        change, content = _content(root, name)
        if change is None:
            continue
        left_files, left_bytes = left_files - 1, left_bytes - len(content)
        if left_files < 0 or left_bytes < 0:
            return Kept(_tree(root, commit, (), b"", is_kept=False), b"")
        changes.append(change)
        parts.append(content)
    contents = b"".join(parts)
    return Kept(_tree(root, commit, changes, contents, is_kept=True), contents)


def put_up(tree: WorkTree, contents: bytes, today: Path, target: Path) -> None:
    """Have the recorded work tree in the new folder `target`; `today` lies in the one of now.

    Raises EnvironmentChanged where its commit is gone, StoreFailed.
    """
    try:
        target.mkdir(parents=True)
        root = top_of(today) or today
        if tree.commit:
            _put_up_commit(tree, root, target)
        elif not tree.is_kept:
            _copy(root, target)
        at = 0
        for change in tree.changes:
            _put(target, change, contents[at : at + change.size])
            at += change.size
        (target / _STATE).mkdir(exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise StoreFailed(f"the work tree cannot be put up in {target}: {error}") from error


def top_of(folder: Path) -> Path | None:
    """The top of the repository around a folder; None: there is none."""
    found = _git_text(folder, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def _tree(
    root: Path, commit: str, changes: Iterable[Change], contents: bytes, *, is_kept: bool
) -> WorkTree:
    return WorkTree(
        folder=str(root),
        commit=commit,
        branch=_git_text(root, "symbolic-ref", "-q", "--short", "HEAD") if commit else "",
        changes=tuple(changes),
        contents=body_of(contents),
        is_kept=is_kept,
    )


# --- keeping --------------------------------------------------------------------------------------


def _changed(root: Path) -> Iterator[str]:
    """Paths that differ from the commit, but for what git ignores."""
    listed = _git(root, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
        if entry and not _is_ours(entry[3:]):
            yield entry[3:].rstrip("/")


def _all_files(root: Path) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(each for each in names if each not in {_STATE, _GIT})
        here = Path(folder).relative_to(root)
        links = [each for each in names if (Path(folder) / each).is_symlink()]
        yield from (str(here / each) for each in sorted([*files, *links]))


def _is_ours(path: str) -> bool:
    return _STATE in path.split("/")


def _content(root: Path, name: str) -> tuple[Change | None, bytes]:
    """A path as it is now; None for what is neither a file nor a link."""
    path = root / name
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            content = os.fsencode(path.readlink())
            return Change(name, Kind.LINK, len(content)), content
        if not stat.S_ISREG(facts.st_mode):
            return None, b""
        if facts.st_size > KEPT_BYTES_MAX:
            return Change(name, Kind.FILE, 0), bytes(KEPT_BYTES_MAX + 1)
        content = path.read_bytes()
    except FileNotFoundError:
        return Change(name, Kind.GONE, 0), b""
    except OSError as error:
        raise StoreFailed(f"{path} cannot be kept: {error.strerror}", path=path) from error
    kind = Kind.PROGRAM if facts.st_mode & stat.S_IXUSR else Kind.FILE
    return Change(name, kind, len(content)), content


# --- putting up -----------------------------------------------------------------------------------


def _put_up_commit(tree: WorkTree, root: Path, target: Path) -> None:
    common = _git_text(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if not common or not _git_text(root, "cat-file", "-t", tree.commit):
        raise EnvironmentChanged(
            f"the recorded commit {tree.commit[:12]} is not in {root}; fetch it, or go to the"
            " repository where the run was recorded",
            commit=tree.commit,
        )
    shutil.copytree(
        common, target / _GIT, symlinks=True, ignore=shutil.ignore_patterns("worktrees", "*.lock")
    )
    branch = tree.branch and f"refs/heads/{tree.branch}"
    steps = (
        ("config", "--local", "core.bare", "false"),
        ("config", "--local", "--unset-all", "core.worktree"),
        ("update-ref", "--no-deref", branch or "HEAD", tree.commit),
        ("symbolic-ref", "HEAD", branch) if branch else ("rev-parse", "HEAD"),
        ("read-tree", "--reset", "-u", tree.commit),
    )
    for step in steps:
        _git(target, *step)
    if _git_text(target, "rev-parse", "HEAD") != tree.commit:
        raise StoreFailed(f"git could not put up commit {tree.commit[:12]} in {target}")
    for name in _ignored(root):
        with suppress(FileExistsError):
            _copy(root / name, target / name)


def _ignored(root: Path) -> Iterator[str]:
    listed = _git(
        root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    for name in listed.decode("utf-8", "surrogateescape").split("\0"):
        if name and not _is_ours(name):
            yield name.rstrip("/")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        ignored = shutil.ignore_patterns(_STATE)
        shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _put(target: Path, change: Change, content: bytes) -> None:
    path = target / change.path
    if not path.parent.resolve().is_relative_to(target.resolve()):
        raise StoreFailed(f"the recorded file {change.path} lies behind a link out of its folder")
    if path.is_symlink() or path.is_file():
        path.unlink()
    if change.kind is Kind.GONE:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if change.kind is Kind.LINK:
        path.symlink_to(os.fsdecode(content))
        return
    path.write_bytes(content)
    path.chmod(_MODES[change.kind])


# --- git ------------------------------------------------------------------------------------------


def _git_text(folder: Path, *arguments: str) -> str:
    return _git(folder, *arguments).decode("utf-8", "surrogateescape").strip()


def _git(folder: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it fails or is not there."""
    with suppress(OSError):
        done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else b""
    return b""
