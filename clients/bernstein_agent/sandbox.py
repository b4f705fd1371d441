"""Where a replay locks an agent in: a machine that it can't change, and one address to talk to.

What happens inside is in inside.py; this module finds what makes the namespaces, and says what goes
where. Rules: docs/agents.md, section "Locked in".
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import InvalidInput, SandboxMissing

# Each gives all rights within namespaces of its own, and none outside.
_NAMESPACES: Final = (
    (
        *(
            "bwrap",
            "--die-with-parent",
            "--unshare-user",
            "--unshare-net",
            "--cap-add",
            "ALL",
            "--dev-bind",
            "/",
            "/",
        ),
        "--",
    ),
    ("unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--mount", "--"),
)
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - they are shown, not used
_UNIX_SOCKETS: Final = Path("/proc/net/unix")
_READY: Final = b"ok"
CANNOT_RUN: Final = b"cannot run "
# What would lead around the walls, or to somebody who is not there.
_LEFT_OUT: Final = frozenset(
    {
        *("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST", "SSH_AUTH_SOCK", "WAYLAND_DISPLAY"),
        *("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """What an agent finds: `trees` and `home` are pairs of where a folder is and where it is seen.

    `port` of its loopback device leads to `socket`; without a socket it has no network at all.
    `covered` folders and files are empty.
    """

    folder: Path
    trees: tuple[tuple[Path, Path], ...] = ()
    home: tuple[Path, Path] | None = None
    covered: tuple[Path, ...] = ()
    socket: Path | None = None
    port: int = 0


class Sandbox:
    """One agent's; the command is started with `status` passed on, then `wait_until_ready`."""

    def __init__(self, place: Place) -> None:
        """Raises SandboxMissing where this machine has nothing that locks an agent in."""
        self._namespaces = _namespaces()
        self._place = place
        self._read_end, self.status = os.pipe()

    def command(self, command: Sequence[str]) -> list[str]:
        """What to start instead of the command."""
        spec = _spec(self._place, self.status)
        return [*self._namespaces, *_inside(), spec, *command]

    def wait_until_ready(self) -> None:
        """Until the agent runs. Raises InvalidInput for a command that is none, SandboxMissing."""
        os.close(self.status)
        with os.fdopen(self._read_end, "rb") as answers:
            said = answers.read()
        if said.startswith(CANNOT_RUN):
            raise InvalidInput(said.decode(errors="replace"))
        if said != _READY:
            why = said.decode(errors="replace") or "it ended at once"
            raise SandboxMissing(f"the agent cannot be locked in: {why}; {_ADVICE}")


_ADVICE: Final = (
    "allow user namespaces, or install bubblewrap; --unsafe-tools lets its tools reach files and"
    " network"
)


def sandbox_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for an agent that is locked in."""
    return {name: text for name, text in environ.items() if name not in _LEFT_OUT}


def check_possible() -> None:
    """Raise SandboxMissing where no agent can be locked in."""
    _namespaces()


def is_possible() -> bool:
    """Whether an agent can be locked in here."""
    try:
        check_possible()
    except SandboxMissing:
        return False
    return True


@cache
def _namespaces() -> tuple[str, ...]:
    """The first of the programs that does it here; tried, since many machines forbid it."""
    for candidate in _NAMESPACES:
        program = shutil.which(candidate[0])
        if program is not None and _works((program, *candidate[1:])):
            return (program, *candidate[1:])
    raise SandboxMissing(
        f"an agent cannot be locked in here: neither bwrap nor unshare works; {_ADVICE}"
    )


def _works(namespaces: tuple[str, ...]) -> bool:
    read_end, status = os.pipe()
    command = [*namespaces, *_inside(), _spec(Place(Path("/")), status), "true"]
    try:
        done = subprocess.run(  # noqa: S603 - one of the two above
            command, pass_fds=[status], capture_output=True, check=False
        )
    finally:
        os.close(status)
        os.close(read_end)
    return done.returncode == 0


def _inside() -> list[str]:
    return [sys.executable, "-I", str(Path(__file__).with_name("inside.py"))]


def _spec(place: Place, status: int) -> str:
    scratch: list[JsonValue] = [[each, each] for each in _TEMPORARY if Path(each).is_dir()]
    if place.home is not None:
        scratch.append([str(place.home[0]), str(place.home[1])])
    members: dict[str, JsonValue] = {
        "socket": "" if place.socket is None else str(place.socket),
        "port": place.port,
        "scratch": scratch,
        "trees": [[str(source), str(target)] for source, target in place.trees],
        "covered": [*map(str, place.covered), *_sockets(place)],
        "kept": [each for each in _programs() if each.startswith("/run/") and Path(each).is_dir()],
        "folder": str(place.folder),
        "status_fd": status,
    }
    return spelled(members)


def _sockets(place: Place) -> list[str]:
    """Where somebody listens now; those below folders that are laid over answer nobody anyway."""
    laid_over = [*_TEMPORARY, "/run"]
    if place.home is not None and place.home[0] == place.home[1]:
        laid_over.append(str(place.home[0]))
    lines = _UNIX_SOCKETS.read_text(errors="surrogateescape").splitlines()
    paths = {os.path.realpath(each.split(None, 7)[7]) for each in lines if " /" in each}
    return sorted(each for each in paths if not any(map(Path(each).is_relative_to, laid_over)))


def _programs() -> list[str]:
    return os.environ.get("PATH", "").split(":")
