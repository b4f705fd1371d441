"""Patroni as deploy/patroni pins it, in an environment that PostgreSQL's user can read."""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

DEPLOYED = Path(__file__).parents[2] / "deploy" / "patroni"
# Not the test's own Python: that may be in a folder which only its user may enter.
PYTHON = "/usr/bin/python3"


def patroni_programs() -> Path:
    """Their folder, made once and kept for the next test run; skips by name without it."""
    for program, package in ("etcd", "etcd-server"), (PYTHON, "python3-venv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is needed: apt-get install {package}")
    requirements = DEPLOYED / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"bernstein-test-patroni-{digest}"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            _run(PYTHON, "-m", "venv", "--clear", str(folder))
            pip = (str(folder / "bin" / "pip"), "install", "--quiet", "--require-hashes")
            _run(*pip, "--requirement", str(requirements))
            (folder / "installed").touch()
    return folder / "bin"


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, f"{command[:3]}: {ran.stderr[-2000:]}"
