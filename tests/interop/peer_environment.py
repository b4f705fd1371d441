"""Print the folder of the peer's environment, which is made at the first time and then kept.

Shared by the tests and the benchmarks, whichever comes first. Exits 1 where no interpreter can run
the peer, and 2 where it cannot be installed; the reason is on stderr. Standard library only.
"""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PEER_VERSION = "3.23.0"
FOLDER = Path(__file__).parents[2] / ".peer"
FINDER = Path(__file__).with_name("find_python.py")
NO_INTERPRETER, NOT_INSTALLED = 1, 2


def main() -> None:
    """Make it unless it is there; one process at a time."""
    FOLDER.mkdir(exist_ok=True)
    marker = FOLDER / "installed"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (marker.exists() and marker.read_text() == PEER_VERSION):
            install()
            marker.write_text(PEER_VERSION)
    print(FOLDER / "venv")


def install() -> None:
    target = FOLDER / "venv"
    python = answer([sys.executable, str(FINDER)], NO_INTERPRETER).strip()
    shutil.rmtree(target, ignore_errors=True)
    answer([python, "-m", "venv", str(target)], NOT_INSTALLED)
    pip = [str(target / "bin" / "python"), "-m", "pip"]
    answer([*pip, "install", f"bernstein=={PEER_VERSION}"], NOT_INSTALLED)


def answer(command: Sequence[str], exit_code: int) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}".strip()
        print(said if exit_code == NO_INTERPRETER else f"{' '.join(command)} failed:\n{said}",
              file=sys.stderr)  # fmt: skip
        sys.exit(exit_code)
    return done.stdout


if __name__ == "__main__":
    main()
