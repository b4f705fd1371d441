"""Forking a recorded session: a git worktree of its own, a snapshot, and the steps up to a step.

Rules: docs/formats/session-journal.md, section 13. Whatever was made is taken away again when
something fails on the way. The worktree's state folder is new, so nothing serves it yet: its
journal is written here, once, before anybody can append to it.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bernstein_cli.local_rows import LocalRows, local_path
from bernstein_cli.output import Printed
from bernstein_formats import paths
from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import Conflict, InvalidInput, NotFound, StoreFailed
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal_verify import seed_rows
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.disk import in_words
from bernstein_runtime.regular_file import open_regular, read_regular

_NOT_IN_A_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_DOTS: Final = re.compile(r"\.{2,}")
_LABEL_CHARACTERS_MAX: Final = 32
_GIT_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork that was made."""

    parent_session_id: str
    parent_branch: str
    parent_worktree: str
    session_id: str
    branch: str
    worktree: str
    commit: str
    snapshot_path: str
    from_step: int | None
    parent_step_hash: str | None

    def in_short(self) -> dict[str, Printed]:
        """What `replay debug --fork-from` tells of it."""
        return {
            "from_step": self.from_step,
            "parent_step_hash": self.parent_step_hash,
            "fork_session_id": self.session_id,
            "fork_branch": self.branch,
            "fork_worktree": self.worktree,
        }

    def document(self) -> dict[str, Printed]:
        """The JSON of `session fork`, its names in order."""
        members: dict[str, Printed] = {
            "fork_branch": self.branch,
            "fork_commit": self.commit,
            "fork_session_id": self.session_id,
            "fork_worktree": self.worktree,
            "parent_branch": self.parent_branch,
            "parent_session_id": self.parent_session_id,
            "parent_worktree": self.parent_worktree,
            "snapshot_path": self.snapshot_path,
        }
        if self.from_step is not None:
            members |= {"from_step": self.from_step, "parent_step_hash": self.parent_step_hash}
        return dict(sorted(members.items()))


@dataclass(frozen=True, slots=True)
class _Parent:
    """The session that is forked, and where it stands."""

    session_id: str
    snapshot: Row
    worktree: Path
    commit: str
    # Empty where no branch is checked out.
    branch: str


def fork_session(
    repository: Path,
    session_id: str,
    *,
    from_step: int | None = None,
    label: str = "",
    prompt: str | None = None,
) -> Fork:
    """Fork a session of the repository. Raises NotFound, InvalidInput, JournalError, Conflict."""
    repository = Path(os.path.realpath(repository))
    sdd = repository / ".sdd"
    parent = _parent(repository, session_id)
    rows: list[bytes] = []
    step_hash = None if from_step is None else _seed(sdd, session_id, from_step, rows)
    fork = _planned(parent, sdd / "worktrees", _fork_id(label), from_step, step_hash)
    _git(repository, "worktree", "add", "--quiet", "-b", fork.branch, fork.worktree, fork.commit)
    with ExitStack() as undo:
        undo.callback(_undo, repository, fork)
        write_private(
            Path(fork.snapshot_path), [_snapshot_bytes(parent.snapshot, fork, label, prompt)]
        )
        if from_step is not None:
            own_sdd = Path(fork.worktree, ".sdd")
            write_private(own_sdd / paths.steps_path(fork.session_id), rows)
        undo.pop_all()
    return fork


def _parent(repository: Path, session_id: str) -> _Parent:
    sdd = repository / ".sdd"
    snapshot = _snapshot(sdd, session_id)
    worktree = sdd / "worktrees" / session_id
    worktree = worktree if worktree.is_dir() else repository
    commit = _git(worktree, "rev-parse", "--verify", "HEAD^{commit}")
    branch = _git(worktree, "rev-parse", "--abbrev-ref", "HEAD")
    return _Parent(session_id, snapshot, worktree, commit, "" if branch == "HEAD" else branch)


def _planned(
    parent: _Parent, worktrees: Path, fork_id: str, from_step: int | None, step_hash: str | None
) -> Fork:
    worktree = worktrees / fork_id
    return Fork(
        parent_session_id=parent.session_id,
        parent_branch=parent.branch,
        parent_worktree=str(parent.worktree),
        session_id=fork_id,
        branch=f"fork/{parent.branch.replace('/', '-') or 'session'}/{fork_id}",
        worktree=str(worktree),
        commit=parent.commit,
        snapshot_path=str(worktree / ".sdd" / paths.session_path(fork_id)),
        from_step=from_step,
        parent_step_hash=step_hash,
    )


def _snapshot(sdd: Path, session_id: str) -> Row:
    path = local_path(sdd, paths.session_path(session_id))
    try:
        value = parse_json(read_regular(path))
    except FileNotFoundError:
        raise NotFound(f"parent session not found: {session_id}", session_id=session_id) from None
    except InvalidInput as error:
        raise InvalidInput(f"parent session unreadable: {path}: {error.message}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"parent session unreadable: {path} is no JSON object")
    return value


def _seed(sdd: Path, session_id: str, from_step: int, rows: list[bytes]) -> str:
    """Read the rows that the fork begins with; gives the hash of the last one."""
    if from_step < 0:
        raise InvalidInput(f"from_step must be >= 0 (got {from_step})")
    name = paths.steps_path(session_id)
    LocalRows(sdd).check(name)
    path = local_path(sdd, name)
    try:
        with open_regular(path) as file:
            return seed_rows(file, from_step, "parent journal", rows.append).head_hash
    except FileNotFoundError:
        return seed_rows((), from_step, "parent journal", rows.append).head_hash


def _fork_id(label: str) -> str:
    now = datetime.fromtimestamp(SystemClock().now_seconds(), UTC).astimezone()  # local, as there
    middle = f"{slug}-" if (slug := label_slug(label)) else ""
    return f"fork-{middle}{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def label_slug(label: str) -> str:
    """The part of a label that ids and branches carry; git allows no two dots in a row."""
    slug = _DOTS.sub(".", _NOT_IN_A_LABEL.sub("-", label)).strip("-._")
    return slug[:_LABEL_CHARACTERS_MAX].rstrip("-._")


def _snapshot_bytes(parent: Row, fork: Fork, label: str, prompt: str | None) -> bytes:
    now = datetime.fromtimestamp(SystemClock().now_seconds(), UTC)
    origin: dict[str, JsonValue] = {
        "parent_session_id": fork.parent_session_id,
        "label": label,
        "branch": fork.branch,
        "branched_from_commit": fork.commit,
    }
    if fork.from_step is not None:
        origin |= {"from_step": fork.from_step, "parent_step_hash": fork.parent_step_hash}
    if prompt is not None:
        origin["follow_up_prompt"] = prompt
    members: dict[str, JsonValue] = {
        "session_id": fork.session_id,
        "goal": parent.get("goal", ""),
        "run_seed": parent.get("run_seed"),
        "tasks": parent.get("tasks", []),
        "routing_decisions": parent.get("routing_decisions", {}),
        "git_sha": fork.commit,
        "created_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "bernstein_version": parent.get("bernstein_version", "unknown"),
        "fork": origin,
    }
    # The peer writes the file once more for a prompt, and sorts it then.
    text = json.dumps(members, indent=2, sort_keys=prompt is not None)  # noqa: TID251 - no evidence
    return text.encode()


def write_private(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file that is not there, in folders that are the owner's alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}", path=path) from error


def _undo(repository: Path, fork: Fork) -> None:
    shutil.rmtree(fork.worktree, ignore_errors=True)
    for words in (("worktree", "prune"), ("branch", "-D", fork.branch)):
        with suppress(Conflict):  # the first failure is the one to be told
            _git(repository, *words)


def _git(folder: Path, *words: str) -> str:
    """What git says. Raises Conflict with its last line when it fails."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Conflict(f"git {words[0]} could not be run: {in_words(error)}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word of why"]
        raise Conflict(f"git {' '.join(words[:2])} failed in {folder}: {said[-1]}")
    return done.stdout.strip()
