"""Asking a process of the store's: it alone knows the database and its passwords, and ends."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bernstein_formats.errors import StoreFailed
from bernstein_runtime.refusal import refusal_in
from bernstein_runtime.supervisor import scrubbed


def ask_store(
    what: str,
    sdd_dir: Path,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What it says. Raises what it refuses with."""
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "bernstein_store", what, os.path.abspath(sdd_dir), *arguments],  # noqa: PTH100 - links stay
        env=scrubbed(os.environ if environ is None else environ),
        cwd="/",
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise refusal_in(done.stdout) or StoreFailed(
            f"the store's program ended with {done.returncode};"
            " see whether the installation is whole"
        )
    said: dict[str, Any] = json.loads(done.stdout)
    return said
