"""What a run records of its surroundings, and how today's differ from a recording's."""

import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

_GIT_TIMEOUT_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Commit, branch and configuration; each is empty where there is none."""

    git_sha: str = ""
    git_branch: str = ""
    config_hash: str = ""

    def differences(self, today: "Surroundings") -> tuple[str, ...]:
        """Name what is not as it was recorded."""
        pairs = (
            ("the commit", self.git_sha, today.git_sha),
            ("the branch", self.git_branch, today.git_branch),
            ("bernstein.yaml (its hash)", self.config_hash, today.config_hash),
        )
        return tuple(
            f"{name} differs from the recording: {was or 'none'} then, {now or 'none'} today"
            for name, was, now in pairs
            if was != now
        )


def look_around(project: Path, config: bytes | None) -> Surroundings:
    """Ask git, and hash the configuration file's bytes (None: there is no file)."""
    return Surroundings(
        git_sha=git_output(project, "rev-parse", "HEAD").decode(errors="replace").strip(),
        git_branch=git_output(project, "rev-parse", "--abbrev-ref", "HEAD")
        .decode(errors="replace")
        .strip(),
        config_hash="" if config is None else sha256(config).hexdigest(),
    )


def git_output(project: Path, *arguments: str) -> bytes:
    """Return what git prints, or nothing when it fails or is not there."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            ["git", "-C", str(project), *arguments],  # noqa: S607 - the user's own git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
