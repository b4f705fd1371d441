"""Looks at what an agent will see, and sets of a recorded manifest what can be set."""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from bernstein_formats.agent_environment import (
    KEPT_VARIABLES,
    Difference,
    Environment,
    WorkTree,
    differences,
    kept_variables,
    open_command,
)
from bernstein_formats.errors import EnvironmentChanged, StoreFailed

# Agents that answer to --version at once, and where they keep their settings below home.
_SETTINGS: Final = {
    "aider": (".aider.conf.yml",),
    "claude": (".claude/settings.json", ".claude/CLAUDE.md"),
    "codex": (".codex/config.toml", ".codex/AGENTS.md"),
    "gemini": (".gemini/settings.json", ".gemini/GEMINI.md"),
    "opencode": (".config/opencode/opencode.json",),
    "qwen": (".qwen/settings.json", ".qwen/QWEN.md"),
}
_VERSION_SECONDS: Final = 20.0
_ZONE_FOLDER: Final = "/zoneinfo/"
_FAKETIME: Final = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)


def look_around(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], now: float, tree: WorkTree
) -> Environment:
    """The manifest of here and now, with `tree` around. Raises StoreFailed."""
    program = shutil.which(command[0], path=environ.get("PATH")) if command else None
    name = Path(command[0]).name if command else ""
    home = environ.get("HOME", "")
    return Environment(
        command=open_command(command, environ),
        program_sha256=_digest(Path(program)) if program else "",
        version=_version(program, environ) if program and name in _SETTINGS else "",
        folder=str(folder),
        home=home,
        zone=_zone(environ),
        kernel=platform.release(),
        instant=int(now),
        day=datetime.fromtimestamp(now).astimezone().date().isoformat(),
        variables=kept_variables(environ),
        settings={
            each: _digest(path)
            for each in _SETTINGS.get(name, ())
            if home and (path := Path(home) / each).is_file()
        },
        work_tree=tree,
    )


def check(
    recorded: Environment, today: Environment, requests: Iterable[bytes], *, is_day_set: bool
) -> list[Difference]:
    """What differs and does not matter. Raises EnvironmentChanged for what certainly does."""
    shown = list(requests)
    found = [
        each for each in differences(recorded, today) if not (is_day_set and each.name == "date")
    ]
    telling = [each for each in found if each.stands_in(shown)]
    if telling:
        raise EnvironmentChanged(
            "the agent would tell its model of other surroundings than were recorded:"
            f" {'; '.join(each.text() for each in telling)}; make them the same, install"
            " libfaketime for the date, or record the run again",
            differences=", ".join(each.name for each in telling),
        )
    return found


def pinned_environ(recorded: Environment, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with the kept ones as they were; a date is set where libfaketime is there."""
    pinned = {name: text for name, text in environ.items() if name not in KEPT_VARIABLES}
    pinned |= {name: text for name, text in recorded.variables.items() if text is not None}
    if recorded.zone:
        pinned["TZ"] = recorded.zone
    if recorded.home:
        pinned["HOME"] = recorded.home
    if library := faketime():
        pinned |= {
            "LD_PRELOAD": library,
            "FAKETIME": f"@{recorded.instant}",
            "FAKETIME_FMT": "%s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
    return pinned


def faketime() -> str:
    """The library that sets a program's date; empty: it is not installed."""
    found = (each for pattern in _FAKETIME for each in sorted(Path("/").glob(pattern[1:])))
    return str(next(found, ""))


def _version(program: str, environ: Mapping[str, str]) -> str:
    """What the program says of its version; empty where it says nothing."""
    known = {name: environ[name] for name in ("PATH", "HOME", "LANG") if name in environ}
    try:
        done = subprocess.run(  # noqa: S603 - a known agent, asked for its version
            [program, "--version"],
            env=known,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.decode(errors="replace").split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror}", path=path) from error


def _zone(environ: Mapping[str, str]) -> str:
    """The zone's name; empty where nothing says it."""
    if given := environ.get("TZ"):
        return given
    target = os.path.realpath("/etc/localtime")
    return target.partition(_ZONE_FOLDER)[2]
