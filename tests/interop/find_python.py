"""Print an interpreter that can run the peer (3.12 or newer, with venv and pip), or exit 1.

Candidates are run, since PATH alone may name shims that do not work. Standard library only: CI asks
before anything is installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Newest first among those that the peer's dependencies have wheels for.
NAMES = ("python3.13", "python3.12", "python3.14", "python3")
IS_USABLE = "import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 12))"


def candidates() -> Iterator[str]:
    """Interpreters that may exist."""
    yield sys.executable
    yield from NAMES
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(found) for found in sorted(versions.glob("3.1[2-9]*/bin/python"), reverse=True))
    if shutil.which("uv"):
        command = ["uv", "python", "find", "--no-project", ">=3.12"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        yield found.stdout.strip()


def is_usable(python: str) -> bool:
    """Whether it starts, and is new enough."""
    try:
        done = subprocess.run([python, "-c", IS_USABLE], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def main() -> None:
    """Print the first that works."""
    for python in candidates():
        if python and is_usable(python):
            print(python)
            return
    sys.exit("the peer needs Python 3.12 or newer (with venv and pip), and none was found here")


if __name__ == "__main__":
    main()
