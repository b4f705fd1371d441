"""`svc/supervisor.json`: who supervises a project, and below which folder its sockets are.

Commands of one project may have different runtime folders (ssh, cron, a service manager). The
supervisor that holds the project's lock writes the record; without that lock it means nothing.
"""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from bernstein_runtime.disk import failed

RECORD_BYTES_MAX = 8192


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """A supervisor of this user as it wrote itself down."""

    pid: int
    runtime_root: Path


def record_path(state_dir: Path) -> Path:
    return state_dir / "supervisor.json"


def write_record(state_dir: Path, runtime_root: Path) -> None:
    """This process is the supervisor. Raises DiskFull, StoreFailed."""
    path = record_path(state_dir)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    content = {"pid": os.getpid(), "runtime_root": str(runtime_root)}
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(content, ensure_ascii=False) + "\n")  # noqa: TID251 - not evidence
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # An older record would name a supervisor that is gone.
        path.unlink(missing_ok=True)
        raise failed(path, error) from error


def record_owner(state_dir: Path) -> int | None:
    """The user whose supervisor wrote itself down; None where none did."""
    try:
        return record_path(state_dir).lstat().st_uid
    except OSError:
        return None


def read_record(state_dir: Path) -> SupervisorRecord | None:
    """What is written down, by a live supervisor or a dead one; None where nothing usable is."""
    path = record_path(state_dir)
    try:
        facts = path.lstat()
        if facts.st_uid != os.getuid() or not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_size > RECORD_BYTES_MAX:
            return None
        content = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
        pid, root = content["pid"], Path(content["runtime_root"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(pid, int) or not root.is_absolute() or "\0" in str(root):
        return None
    return SupervisorRecord(pid, root)
