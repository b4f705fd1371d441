"""Receipts around a run: made at its end, searched for secrets, withheld; and their keys' chain."""

import json
import subprocess
import sys

import pytest
from tests.software_token import make_token

pytestmark = pytest.mark.processes

PLAN = (
    "stages: [{name: a, steps: [{title: Touch, agent: {command: [sh, -c, 'env > made']},"
    " completion_signals: [{type: path_exists, path: made}]}]}]\n"
)
KEY = "raw:" + "07" * 32


@pytest.fixture
def bernstein(project):
    (project.folder / "plan.yaml").write_text(PLAN)

    def run(*arguments, **variables):
        done = subprocess.run(
            [sys.executable, "-m", "bernstein_cli", *map(str, arguments)],
            cwd=project.folder,
            env={**project.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def keys(bernstein, project):
    for name in ("a.pem", "b.pem"):
        assert bernstein("keys", "new", name).returncode == 0
    return project.folder


def test_a_run_ends_with_its_receipt_where_a_key_is_named(bernstein, keys):
    ran = bernstein(
        *("run", "plan.yaml", "--json"),
        BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH="a.pem",
        BERNSTEIN_RUN_RECEIPT_SIGNING_KID="op-2026",
    )
    assert ran.returncode == 0, ran.stderr
    receipt = json.loads(ran.stdout)["receipt_path"]
    verified = bernstein("verify", "receipt", receipt, "--public-key", "a.pub.pem", "--json")
    answer = json.loads(verified.stdout)
    assert (verified.returncode, answer["key_id"]) == (0, "op-2026")
    assert answer["cose_verified"] is True


def test_a_key_in_a_variable_signs_and_no_agent_sees_it(bernstein, project):
    ran = bernstein(
        *("run", "plan.yaml"), BERNSTEIN_RUN_RECEIPT_SIGNING_ENV_VAR="RECEIPT_KEY", RECEIPT_KEY=KEY
    )
    assert ran.returncode == 0, ran.stderr
    assert "receipt: " in ran.stdout
    assert "RECEIPT_KEY=" not in (project.folder / "made").read_text()


def test_a_receipt_that_cannot_be_made_is_said_and_does_not_fail_the_run(bernstein):
    ran = bernstein(
        *("run", "plan.yaml", "--json"), BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH="none.pem"
    )
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["receipt_path"] is None
    assert "no receipt of run" in ran.stderr
    assert "none.pem" in ran.stderr


def test_without_a_key_there_is_no_receipt_and_no_word_of_it(bernstein):
    ran = bernstein("run", "plan.yaml", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["receipt_path"]) == (0, None)
    assert "receipt" not in ran.stderr


def test_what_looks_like_a_secret_is_signed_only_when_that_is_said(bernstein, keys):
    pytest.importorskip("kingfisher")
    token = "_".join(("ghp", "16C7e42F292c6912E7710c838347Ae178B4a"))
    (keys / "plan.yaml").write_text(PLAN.replace("Touch", f"Touch with {token}"))
    ran = bernstein("run", "plan.yaml", "--json", BERNSTEIN_RUN_RECEIPT_SIGNING_KEY_PATH="a.pem")
    run_id = json.loads(ran.stdout)["run_id"]
    assert ran.returncode == 0
    assert "github-pat" in ran.stderr
    line = ["verify", "run", run_id, "--signing-key-path", "a.pem"]
    refused = bernstein(*line)
    assert refused.returncode == 1
    assert "--allow-secrets" in refused.stderr
    assert token not in refused.stderr
    assert not list(keys.rglob("run-receipt.*"))
    assert bernstein(*line, "--allow-secrets").returncode == 0


def test_a_receipt_can_be_given_away_without_some_of_its_payloads(bernstein, keys):
    run_id = json.loads(bernstein("run", "plan.yaml", "--json").stdout)["run_id"]
    line = ["verify", "run", run_id, "--signing-key-path", "a.pem", "--output", "whole.json"]
    assert bernstein(*line).returncode == 0
    rows = json.loads((keys / "whole.json").read_bytes())["journal"]["events"]
    step = next(at for at, row in enumerate(rows) if row["event"] == "task_completed")
    made = bernstein("verify", "receipt", "whole.json", "--withhold", step, "part.json", "--json")
    answer = json.loads(made.stdout)
    assert (made.returncode, answer["withheld_events"]) == (0, 1)
    pinned = bernstein("verify", "receipt", "part.json", "--public-key", "a.pub.pem")
    assert pinned.returncode == 0
    assert "1 of the rows came without their payload" in pinned.stdout
    again = bernstein("verify", "receipt", "whole.json", "--withhold", step, "part.json")
    assert (again.returncode, again.stdout) == (1, "")
    assert "is there already" in again.stderr
    folder = bernstein("verify", "receipt", ".", "--withhold", step, "x.json")
    assert folder.returncode == 2


def test_a_receipt_overwrites_nothing_but_a_receipt(bernstein, keys):
    run_id = json.loads(bernstein("run", "plan.yaml", "--json").stdout)["run_id"]
    line = ["verify", "run", run_id, "--signing-key-path", "a.pem", "--output"]
    journal = f".sdd/runs/{run_id}/journal.jsonl"
    before = {name: (keys / name).read_bytes() for name in ("a.pem", journal, "plan.yaml")}
    for name in (*before, "run-receipt.cose", ".sdd"):
        refused = bernstein(*line, name)
        assert (refused.returncode, refused.stdout) == (1, ""), name
    assert {name: (keys / name).read_bytes() for name in before} == before


def test_a_lost_key_is_rotated_and_revoked_and_the_chain_says_so(bernstein, keys):
    run_id = json.loads(bernstein("run", "plan.yaml", "--json").stdout)["run_id"]
    bernstein("verify", "run", run_id, "--signing-key-path", "a.pem", "--output", "r.json")
    assert (
        bernstein("keys", "chain", "new", "c.json", "a.pub.pem", "--kid", "a.pem").returncode == 0
    )
    rotate = ["keys", "chain", "rotate", "c.json", "b.pub.pem", "--kid", "b.pem"]
    signed_by = "--signing-key-path"
    assert bernstein(*rotate, signed_by, "b.pem").returncode == 1
    rotated = bernstein(*rotate, signed_by, "a.pem", "--at", "2026-03-01T00:00:00Z", "--json")
    assert json.loads(rotated.stdout)["entries"] == 1
    verify = ["verify", "receipt", "r.json", "--public-key", "a.pub.pem", "--key-chain", "c.json"]
    assert json.loads(bernstein(*verify, "--json").stdout)["key_verdict"] == "superseded"
    revoke = ["keys", "chain", "revoke", "c.json", "--kid", "a.pem", "--reason", "-lost"]
    revoked = bernstein(*revoke, signed_by, "b.pem", "--at", "2026-04-01T00:00:00Z", "--json")
    head_hash = json.loads(revoked.stdout)["head_hash"]
    distrusted = bernstein(*verify, "--chain-head", head_hash, "--json")
    answer = json.loads(distrusted.stdout)
    assert (distrusted.returncode, answer["key_problem"]) == (4, "key-revoked-time-unknown")
    assert answer["chain_completeness"] == "pinned"
    trusted = bernstein(*verify, "--signed-at", "2026-03-31T23:59:59Z")
    assert trusted.returncode == 0
    shown = bernstein("keys", "chain", "show", "c.json", "--public-key", "a.pub.pem", "--json")
    standings = [key["standing"] for key in json.loads(shown.stdout)["keys"]]
    assert standings == ["revoked", "active"]
    assert bernstein(*rotate, signed_by, "b.pem").returncode == 1
    assert bernstein("keys", "chain", "rotate", "c.json", "b.pub.pem", "--kid", "x").returncode == 1


def test_a_key_in_a_token_and_an_encrypted_one_vouch_for_each_other(bernstein, keys, tmp_path):
    token = make_token(tmp_path / "token", "fleet")
    token.make_key("receipts")
    passphrase, plain, encrypted = keys / "passphrase", keys / "a.pem", keys / "encrypted.pem"
    passphrase.write_text("canary-passphrase\n")
    passphrase.chmod(0o600)
    converted = ["openssl", "pkcs8", "-topk8", "-in", plain, "-out", encrypted]
    subprocess.run([*converted, "-passout", f"file:{passphrase}"], check=True)
    encrypted.chmod(0o600)
    shown = [
        bernstein("keys", "public", token.uri("receipts"), SOFTHSM2_CONF=str(token.configuration)),
        bernstein("keys", "public", "encrypted.pem", "--passphrase-file", "passphrase"),
    ]
    assert shown[1].stdout == (keys / "a.pub.pem").read_text()
    (keys / "token.pub.pem").write_text(shown[0].stdout)

    begun = bernstein("keys", "chain", "new", "c.json", "token.pub.pem", "--kid", "receipts")
    assert begun.returncode == 0, begun.stderr
    line = ("keys", "chain", "rotate", "c.json", "a.pub.pem", "--kid", "a", "--signing-key-path")
    with_token = {"SOFTHSM2_CONF": str(token.configuration)}
    absent = bernstein(*line, token.uri("absent"), **with_token)
    rotated = bernstein(*line, token.uri("receipts"), **with_token)
    revoke = ("keys", "chain", "revoke", "c.json", "--kid", "receipts", "--signing-key-path")
    closed = bernstein(*revoke, "encrypted.pem")
    revoked = bernstein(*revoke, "encrypted.pem", "--passphrase-file", "passphrase", "--json")

    assert [each.returncode for each in (absent, rotated, closed, revoked)] == [1, 0, 1, 0]
    assert "names 0 Ed25519 private keys" in absent.stderr
    assert "--passphrase-file" in closed.stderr
    assert json.loads(revoked.stdout)["entries"] == 2
    for each in (*shown, absent, rotated, closed, revoked):
        assert "canary" not in each.stdout + each.stderr
