"""The auditor's install: its wheel, alone in an environment with `cryptography`, does its work."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "vectors" / "data"
UV = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".venv-uv" / "bin"))


def uv(*arguments, **options):
    assert UV is not None
    command = [UV, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


@pytest.fixture(scope="module")
def auditor(tmp_path_factory):
    """An environment with the wheel in it, made from what the machine has already."""
    if UV is None:
        pytest.skip("needs uv")
    folder = tmp_path_factory.mktemp("auditor")
    uv("build", "--wheel", "--offline", "--out-dir", folder, ROOT / "verifier")
    (wheel,) = folder.glob("bernstein_verify-*.whl")
    uv("venv", "--offline", "--no-project", folder / "venv")
    uv("pip", "install", "--offline", "--python", folder / "venv", wheel)
    return folder / "venv"


def verifier(auditor, *arguments):
    return subprocess.run(
        [auditor / "bin" / "bernstein-verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )


def test_it_depends_on_cryptography_alone(auditor):
    listed = json.loads(uv("pip", "list", "--python", auditor, "--format", "json"))
    names = {each["name"] for each in listed}
    assert names - {"cffi", "pycparser"} == {"bernstein-verify", "cryptography"}


def test_it_verifies_receipts_chains_and_journals(auditor):
    f16 = DATA / "field" / "F16"
    chain = ("--public-key", f16 / "root.pem", "--key-chain", f16 / "chain_full.json")
    cases = [
        (0, "receipt", f16 / "receipt.json"),
        (4, "receipt", f16 / "receipt.json", *chain),
        (0, "receipt", f16 / "receipt.json", *chain, "--signed-at", "2026-03-31T23:59:59Z"),
        (0, "key-chain", f16 / "chain_full.json", "--public-key", f16 / "root.pem"),
        (0, "journal", DATA / "event-journal/157-cli/sdd/runs/ok/journal.jsonl"),
        (1, "receipt", ROOT / "pyproject.toml"),
        (2, "receipt"),
        (2, "none"),
        (0, "--help"),
    ]
    for exit_code, *arguments in cases:
        done = verifier(auditor, *arguments)
        assert done.returncode == exit_code, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
