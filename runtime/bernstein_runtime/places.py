"""Where the processes of one project folder meet: sockets, state, logs.

`.sdd/svc/` holds what is ours among the peer's files. Sockets live in a private runtime folder,
because a socket path may have 107 bytes only. Secrets live outside the project, where its agents
have no business.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bernstein_formats.errors import DiskFull, InvalidInput, StoreFailed
from bernstein_runtime.disk import failed
from bernstein_runtime.lock import is_held
from bernstein_runtime.private import check_private, make_private
from bernstein_runtime.supervisor_record import read_record

FOLDER = "bernstein-svc"
TEMPORARY = Path("/tmp")  # noqa: S108 - its folder of ours is private and checked
# 103 bytes for a socket's path (macOS has the fewest), less /bernstein-svc/<16>/once-<16>.sock
ROOT_BYTES_MAX = 45
# The variable that names the file of a key for receipts.
RECEIPT_KEY_PATH = "BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH"
_OTHER_RUNTIME = "set XDG_RUNTIME_DIR to another folder"


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one project, none of them made yet."""

    sdd_dir: Path
    runtime_root: Path
    secrets_root: Path

    @property
    def name(self) -> str:
        """Of the project among this user's: the same for every caller."""
        return hashlib.sha256(os.fsencode(self.sdd_dir)).hexdigest()[:16]

    @property
    def runtime_dir(self) -> Path:
        return self.runtime_root / FOLDER / self.name

    @property
    def secrets_dir(self) -> Path:
        return self.secrets_root / FOLDER / self.name

    @property
    def redaction_key(self) -> Path:
        """This user's, for all projects: a recording is replayed in other folders, too."""
        return self.secrets_root / FOLDER / "redaction.key"

    @property
    def state_dir(self) -> Path:
        return self.sdd_dir / "svc"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"

    @property
    def supervisor_lock(self) -> Path:
        return self.state_dir / "supervisor.lock"

    def socket(self, service: str) -> Path:
        return self.runtime_dir / f"{service}.sock"

    def log(self, service: str) -> Path:
        return self.logs_dir / f"{service}.log"

    @property
    def runtime_holder(self) -> Path:
        """The folder around those that we make for sockets."""
        return TEMPORARY if self.runtime_root == _temporary_root() else self.runtime_root


def places_for(sdd_dir: Path, environ: Mapping[str, str]) -> Places:
    """The places of the project whose state folder is `sdd_dir`.

    Sockets are where a live supervisor of this user has them, else where `environ` says.
    """
    places = Places(
        sdd_dir=Path(os.path.realpath(sdd_dir)),
        runtime_root=_runtime_root(environ),
        secrets_root=_state_root(environ),
    )
    record = read_record(places.state_dir)
    root = record.runtime_root if record else None
    if root is None or root == places.runtime_root or not is_held(places.supervisor_lock):
        return places
    return replace(places, runtime_root=root)


def audit_key_path(configured: str, environ: Mapping[str, str]) -> Path:
    """The file of the key that MACs are made with: the configured one, else the peer's place."""
    if configured:
        if not Path(configured).is_absolute():
            raise InvalidInput(f"[signer] audit_key_file: {configured!r} is not an absolute path")
        return Path(configured)
    return _state_root(environ) / "bernstein" / "audit.key"


def _temporary_root() -> Path:
    return TEMPORARY / f"{FOLDER}-{os.getuid()}"


def _runtime_root(environ: Mapping[str, str]) -> Path:
    given = _absolute(environ, "XDG_RUNTIME_DIR")
    if given is None or len(os.fsencode(given)) > ROOT_BYTES_MAX:
        return _temporary_root()
    return given


def _state_root(environ: Mapping[str, str]) -> Path:
    given = _absolute(environ, "XDG_STATE_HOME")
    return given or _home(environ) / ".local" / "state"


def _absolute(environ: Mapping[str, str], name: str) -> Path | None:
    # A relative one is to be ignored: XDG Base Directory Specification, section "Basics".
    given = environ.get(name, "")
    return Path(given) if os.path.isabs(given) else None  # noqa: PTH117 - "" is no path


def _home(environ: Mapping[str, str]) -> Path:
    given = _absolute(environ, "HOME")
    if given is not None:
        return given
    try:
        return Path.home().resolve()
    except RuntimeError as error:
        raise InvalidInput(
            "this user has no home folder: set HOME, or XDG_STATE_HOME to a folder for the keys"
            " that seal runs"
        ) from error


def make_state(places: Places) -> None:
    """Make the folders that a supervisor and its services need."""
    make_logs(places)
    make_runtime(places)


def make_logs(places: Places) -> None:
    """Make the folders within the state folder."""
    try:
        places.logs_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = failed(places.logs_dir, error)
        if isinstance(reason, DiskFull):
            raise reason from error
        raise StoreFailed(
            f"cannot write below {places.sdd_dir}: {error.strerror}; "
            "make the folder writable, or read its runs with --offline",
            path=places.sdd_dir,
        ) from error


def make_runtime(places: Places) -> None:
    """Make the folder of sockets. Raises InvalidInput where others could put theirs."""
    make_private(places.runtime_dir, places.runtime_holder, _OTHER_RUNTIME)


def check_runtime(places: Places) -> None:
    """InvalidInput where others could put sockets; FileNotFoundError where there is no folder."""
    check_private(places.runtime_dir, places.runtime_holder, _OTHER_RUNTIME)


def make_secrets(places: Places, folder: str) -> Path:
    """Make a folder for secrets of this project, and give it."""
    made = places.secrets_dir / folder
    make_private(made, places.secrets_root, "set XDG_STATE_HOME to another folder")
    return made
