"""docs/commands.md is what docs/generate makes of the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_all_commands_is_fresh() -> None:
    ran = subprocess.run(
        [sys.executable, str(DOCS / "generate"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
