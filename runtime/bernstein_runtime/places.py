"""Where the processes of one project folder meet: sockets, state, logs.

`.sdd/svc/` holds what is ours among the peer's files. Sockets live in a private runtime folder,
because a socket path may have 107 bytes only. Secrets live outside the project, where its agents
have no business.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bernstein_formats.errors import InvalidInput, StoreFailed


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one project, none of them made yet."""

    sdd_dir: Path
    runtime_dir: Path
    secrets_dir: Path

    @property
    def state_dir(self) -> Path:
        return self.sdd_dir / "svc"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"

    def socket(self, service: str) -> Path:
        return self.runtime_dir / f"{service}.sock"

    def log(self, service: str) -> Path:
        return self.logs_dir / f"{service}.log"


def places_for(sdd_dir: Path, environ: Mapping[str, str]) -> Places:
    """The places of the project whose state folder is `sdd_dir`; the same for every caller."""
    resolved = Path(os.path.realpath(sdd_dir))
    name = hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]
    runtime_root = environ.get("XDG_RUNTIME_DIR") or str(
        Path(tempfile.gettempdir()) / f"bernstein-svc-{os.getuid()}"
    )
    return Places(
        sdd_dir=resolved,
        runtime_dir=Path(runtime_root) / "bernstein-svc" / name,
        secrets_dir=_state_root(environ) / "bernstein-svc" / name,
    )


def audit_key_path(configured: str, environ: Mapping[str, str]) -> Path:
    """The file of the key that MACs are made with: the configured one, else the peer's place."""
    if configured:
        if not Path(configured).is_absolute():
            raise InvalidInput(f"[signer] audit_key_file: {configured!r} is not an absolute path")
        return Path(configured)
    return _state_root(environ) / "bernstein" / "audit.key"


def _state_root(environ: Mapping[str, str]) -> Path:
    return Path(
        environ.get("XDG_STATE_HOME")
        or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    )


def make_private(folder: Path) -> None:
    """Make `folder` with mode 0700, or refuse one that somebody else could reach."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise StoreFailed(
            f"cannot make {folder}: {error.strerror}; choose a writable place", path=folder
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise InvalidInput(f"{folder} is not a folder of this user; remove it", path=folder)
    if stat.S_IMODE(facts.st_mode) & 0o077:
        folder.chmod(0o700)


def make_state(places: Places) -> None:
    """Make the folders that a supervisor and its services need."""
    make_private(places.runtime_dir)
    try:
        places.logs_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(
            f"cannot write below {places.sdd_dir}: {error.strerror}; "
            "make the folder writable, or read its runs with --offline",
            path=places.sdd_dir,
        ) from error
