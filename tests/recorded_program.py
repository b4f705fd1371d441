"""A program that talks to providers: run directly, recorded, and replayed without them."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.scripted_provider import Asked, ProviderServer, Say

PROGRAM = Path(__file__).with_name("sdk_calls.py")
OUT = "outcomes.json"
SECONDS = 300


def calling(asked: Asked) -> Say:
    """A tool is called where there is one."""
    if asked.tools and not asked.results:
        return Say(tool=asked.tools[0], arguments={"city": "Köln am Rhein"})
    return Say(asked.text)


def addresses(provider: ProviderServer) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": provider.url,
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "GOOGLE_GEMINI_BASE_URL": provider.url,
        **{f"{name}_API_KEY": "sk-real" for name in ("ANTHROPIC", "OPENAI", "GEMINI")},
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONWARNINGS": "ignore",
    }


def check_sdks_replay(project: Any, python: Path, names: Sequence[str]) -> None:
    """The same outcomes three times, and the recorded head at the end."""
    program = (str(python), str(PROGRAM), OUT, *names)
    bernstein = (sys.executable, "-m", "bernstein_cli")
    with ProviderServer(calling) as provider:
        direct, _ = _outcomes(project, program, addresses(provider))
        asked = len(provider.asked)
    with ProviderServer(calling) as provider:
        record = (*bernstein, "record", "--json", "--", *program)
        recorded, made = _outcomes(project, record, addresses(provider))
        assert len(provider.asked) == asked
    kept = project.folder.parent / "replayed"
    replay = (*bernstein, "replay", made["run_id"], "--json", "--work-tree", str(kept), "--")
    replayed, again = _outcomes(project, (*replay, *program), {"PYTHONWARNINGS": "ignore"}, kept)

    assert recorded == direct
    assert replayed == direct
    (lane,) = again["lanes"]
    assert (lane["served"], lane["misses"], lane["left"]) == (asked, 0, 0)
    assert lane["cut"] == made["lanes"][0]["cut"] > 0
    assert again["head"] == again["recorded_head"] == made["head"]


def _outcomes(
    project: Any, command: Sequence[str], environ: Mapping[str, str], folder: Path | None = None
) -> tuple[Any, Any]:
    """What the SDKs saw, and the verdict where there was one."""
    done = subprocess.run(
        command,
        cwd=project.folder,
        env={**project.environ, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out = (folder or project.folder) / OUT
    found = json.loads(out.read_text())
    out.unlink()
    return found, json.loads(done.stdout) if done.stdout else None
