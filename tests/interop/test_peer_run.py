"""A run that our command records is taken by the peer, one of the peer's own by our command."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bernstein_tour.model_server import ModelServer

pytestmark = [pytest.mark.peer, pytest.mark.processes]

ROOT = Path(__file__).parents[2]
REAL_RUN = ROOT / "tests" / "vectors" / "data" / "real-run"
REAL_RUN_ID = "20261130-163229"


def ours(project: Any, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *argv],
        cwd=project.folder,
        env={**project.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def recorded(project: Any) -> tuple[str, Mapping[str, Any]]:
    """The bundled example, recorded by our command."""
    shutil.copytree(ROOT / "examples" / "release-notes", project.folder, dirs_exist_ok=True)
    with ModelServer() as model:
        ran = ours(
            project,
            "run",
            "plan.yaml",
            "--json",
            BERNSTEIN_DETERMINISTIC_SEED="42",
            OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY="not-a-key",
        )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    return report["run_id"], report


def test_the_peer_verifies_re_derives_and_certifies_our_run(
    peer: Any, project: Any, recorded: tuple[str, Mapping[str, Any]]
) -> None:
    run_id, report = recorded
    assert ours(project, "keys", "new", "key.pem").returncode == 0
    assert ours(project, "verify", "run", run_id, "--signing-key-path", "key.pem").returncode == 0
    receipt = project.folder / ".sdd" / "runs" / run_id / "run-receipt.json"
    made = receipt.read_bytes(), receipt.with_suffix(".cose").read_bytes()

    verified = peer.run("replay", run_id, "--verify", "--as-json", cwd=project.folder)
    derived = peer.run("replay", run_id, "--re-derive", "--as-json", cwd=project.folder)
    checked = peer.run(
        "verify", "receipt", receipt, "--public-key", "key.pub.pem", "--json", cwd=project.folder
    )
    built = peer.run("verify", "run", run_id, "--signing-key-path", "key.pem", cwd=project.folder)

    assert verified.exit == 0
    assert json.loads(verified.stdout)["chain_consistent"] is True
    assert derived.exit == 0
    assert json.loads(derived.stdout)["derived_head"] == report["head_hash"]
    assert checked.exit == 0
    assert json.loads(checked.stdout)["tier"] == "provenance"
    assert built.exit == 0
    assert (receipt.read_bytes(), receipt.with_suffix(".cose").read_bytes()) == made


def test_our_verdict_on_the_peers_own_run_is_the_peers(peer: Any, project: Any) -> None:
    shutil.copytree(REAL_RUN / "sdd", project.sdd, dirs_exist_ok=True)

    for mode in ("--verify", "--re-derive"):
        theirs = peer.run("replay", REAL_RUN_ID, mode, "--as-json", cwd=project.folder)
        mine = ours(project, "replay", REAL_RUN_ID, mode, "--as-json")
        expected = json.loads(theirs.stdout)

        assert mine.returncode == theirs.exit
        assert {key: json.loads(mine.stdout)[key] for key in expected} == expected


def test_the_peers_receipt_of_its_run_is_ours_byte_for_byte(peer: Any, project: Any) -> None:
    shutil.copytree(REAL_RUN / "sdd", project.sdd, dirs_exist_ok=True)
    assert ours(project, "keys", "new", "key.pem").returncode == 0
    argv = ("verify", "run", REAL_RUN_ID, "--signing-key-path", "key.pem")
    receipt = project.sdd / "runs" / REAL_RUN_ID / "run-receipt.json"

    assert peer.run(*argv, cwd=project.folder).exit == 0
    theirs = receipt.read_bytes(), receipt.with_suffix(".cose").read_bytes()
    receipt.unlink()
    mine = ours(project, *argv)

    assert mine.returncode == 0, mine.stderr
    assert (receipt.read_bytes(), receipt.with_suffix(".cose").read_bytes()) == theirs
