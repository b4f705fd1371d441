"""Packages that tests install, pinned, into a cache folder of the user's, each by itself."""

import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bernstein-test-agents"
SECONDS = 600


@dataclass(frozen=True)
class Package:
    """`spec` is npm's, or with == the Python index's."""

    spec: str

    @property
    def is_python(self) -> bool:
        return "==" in self.spec

    @property
    def folder(self) -> Path:
        return CACHE / re.sub(r"[^\w.]+", "-", self.spec).strip("-")

    @property
    def programs(self) -> Path:
        return self.folder / ("bin" if self.is_python else "node_modules/.bin")

    def install(self) -> None:
        """Once, whoever else wants it; skips the test by name where it cannot be had."""
        CACHE.mkdir(parents=True, exist_ok=True)
        with Path(f"{self.folder}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.folder / "installed"
            if done.exists():
                return
            for command in self._commands():
                if shutil.which(command[0]) is None:
                    pytest.skip(f"{self.spec} is not tested: there is no {command[0]}")
                ran = subprocess.run(
                    command, capture_output=True, text=True, timeout=SECONDS, check=False
                )
                if ran.returncode:
                    last = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
                    pytest.skip(f"{self.spec} is not tested: it cannot be installed: {last}")
            done.touch()

    def _commands(self) -> list[list[str]]:
        if self.is_python:
            python = ("--python", str(self.folder))
            return [
                ["uv", "venv", "--quiet", "--clear", "--python", "3.11", str(self.folder)],
                ["uv", "pip", "install", "--quiet", *python, self.spec],
            ]
        options = ("--no-audit", "--no-fund", "--loglevel=error")
        return [["npm", "install", *options, "--prefix", str(self.folder), self.spec]]
