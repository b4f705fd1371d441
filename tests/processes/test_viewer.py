"""The live page in a real browser: a run's rows and its verdict, with no help from outside."""

import html
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bernstein_client.connection import Services

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def page(url: str, folder: Path) -> str:
    """The page as it is once the browser has run it for a while."""
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_the_page_shows_rows_as_text_and_the_verdict(
    services: Services, tmp_path: Path, gateway_url: Any
) -> None:
    run_id = services.journal.create_run()
    hostile = "<img src=x onerror=document.title='gone'>"
    services.journal.append_many(
        run_id, [("run_started", {"run_id": run_id}), ("task_claimed", {"task_id": hostile})]
    )
    services.journal.finish_run(run_id)

    shown = page(gateway_url(run_id), tmp_path / "profile")

    assert f"<title>{run_id}</title>" in shown
    assert '<strong id="word">chain intact</strong>' in shown
    assert "2 rows, coverage complete, identity verified" in shown
    cells = [html.unescape(each) for each in re.findall(r"<td>([^<]*)</td>", shown)]
    assert cells[:2] == ["0", "run_started"]
    assert hostile in cells
    assert "<img" not in shown
