"""Programs of two releases side by side: ours, and the one before, from the history of the code."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The last commit before fleets: what was there to be upgraded.
BEFORE = "7d5087ac2e782a720007b765f03a8bda1e0e5aee"
FOLDERS = ("formats", "verifier", "protos", "runtime", "services", "clients")
# Behind the tables of now, as a release to come may add to them: nothing that older programs miss.
EXPANSION = """-- needs: 1
create table later (id bigint primary key);
alter table runs add column later text;
"""


@dataclass(frozen=True)
class Release:
    """A tree of packages, in front of those that are installed."""

    name: str
    folders: tuple[Path, ...]

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {**environ, "PYTHONPATH": os.pathsep.join(map(str, self.folders))}

    def python(self, *arguments: object) -> list[str]:
        return [sys.executable, *map(str, arguments)]


def release_before(folder: Path) -> Release:
    """Ours as it was, under a version of its own. Skips where there is no history at all."""
    if not (ROOT / ".git").exists():
        pytest.skip("the release before comes from the history of the repository")
    packed = subprocess.run(
        ["git", "-C", ROOT, "archive", BEFORE, *FOLDERS], capture_output=True, check=False
    )
    assert packed.returncode == 0, (
        f"get the whole history: git fetch --unshallow; {packed.stderr!r}"
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    version = folder / "runtime" / "bernstein_runtime" / "__init__.py"
    version.write_text(version.read_text().replace('"0.1.0"', '"0.0.9"'))
    return Release("before", tuple(folder / each for each in FOLDERS))


def release_now(folder: Path) -> Release:
    """Ours, with one migration more than there is."""
    newer = folder / "bernstein_store"
    shutil.copytree(ROOT / "services" / "bernstein_store", newer)
    (newer / "postgres" / "migrations" / "9999_later.sql").write_text(EXPANSION)
    return Release("now", (folder, *(ROOT / each for each in FOLDERS)))
