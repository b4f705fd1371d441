"""Every command does the same against a fleet as beside services of its own, or says clearly that
it is for their hosts. The client's host starts no service and has no file of a run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Project
from tests.fleet import Fleet, ServiceHost, fleet_in
from tests.postgres_server import PostgresServer

from bernstein_client.steps import Step
from bernstein_formats.event_journal import START, next_row
from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
AGENT = """
import json, os, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": sys.argv[1]}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"])
"""


@pytest.fixture(scope="module")
def host(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[tuple[Fleet, ServiceHost]]:
    """All services of a fleet on one host, for all tests of this file."""
    folder = tmp_path_factory.mktemp("fleet")
    key = folder / "receipt.pem"
    subprocess.run([sys.executable, "-m", "bernstein_signer", "--new-key", str(key)], check=True)
    settings = {
        "BERNSTEIN_SVC_STORE_URL": postgres.database(),
        "BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE": str(key),
    }
    with fleet_in(folder / "hosts", **settings) as fleet:
        made = fleet.host("one")
        made.start("journal", "recorder", "rederiver", "signer")
        yield fleet, made


@pytest.fixture
def client(host: tuple[Fleet, ServiceHost], request: pytest.FixtureRequest) -> Project:
    fleet, made = host
    name = request.node.name.replace("[", "-").replace("]", "")[:40]
    return fleet.client(name, made, BERNSTEIN_SVC_FLEET_ORIGIN=f"{request.node.name}:/p")


def bernstein(
    client: Project, *arguments: str, exits: int = 0, **environ: Any
) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=client.folder,
        env={**client.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == exits, f"{arguments}: {done.stdout}{done.stderr}"
    return done


def told(client: Project, *arguments: str, exits: int = 0, **environ: Any) -> Any:
    return json.loads(bernstein(client, *arguments, "--json", exits=exits, **environ).stdout)


def assert_nothing_here(client: Project) -> None:
    """No service but the proxy or the gateway ran here, and no run is here."""
    logs = {path.name for path in client.sdd.rglob("*.log")}
    assert logs <= {"supervisor.log", "proxy.log", "gateway.log"}
    assert not list(client.sdd.rglob("journal.jsonl"))


def test_a_plan_runs_replays_verifies_and_gets_a_receipt(client: Project) -> None:
    copy_example(client.folder)
    with ModelServer() as model:
        keys: dict[str, Any] = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": model.base_url}
        run_id = told(client, "run", "plan.yaml", BERNSTEIN_DETERMINISTIC_SEED="42", **keys)[
            "run_id"
        ]
    told(client, "run", "plan.yaml", BERNSTEIN_REPLAY_RUN_ID=run_id)

    assert told(client, "replay", "list")["runs"][1]["run_id"] == run_id
    assert told(client, "replay", run_id, "--verify")["identity"] == "verified"
    assert told(client, "replay", run_id, "--verify", "--require-provenance")["chain_consistent"]
    assert told(client, "replay", run_id, "--re-derive")["ok"]
    assert told(client, "replay", run_id, "--from-step", "3")
    assert bernstein(client, "replay", run_id).stdout
    assert told(client, "replay", "diff", run_id, "latest")["diverged"] is False
    assert bernstein(client, "follow", run_id).stdout
    assert bernstein(client, "thread", "verify", "--run", run_id).stdout
    assert bernstein(client, "determinism", "verify", run_id).stdout
    built = told(client, "verify", "run", run_id, "--output", "receipt.json")
    checked = told(client, "verify", "receipt", "receipt.json")

    assert (checked["run_id"], built["run_id"]) == (run_id, run_id)
    asked = told(client, "verify", "receipt", "receipt.json", "--remote", "--require-provenance")
    assert asked["remote"] == {
        "signed_by_its_key": True,
        "in_its_ledger": True,
        "run_sealed": True,
    }
    bernstein(client, "admin", "export", run_id, "out")
    bernstein(client, "services", "prune", "--keep", "5", "--dry-run")
    bernstein(client, "services", "seal", "--abandoned", run_id)
    assert_nothing_here(client)
    assert told(client, "admin", "import", "out")["runs"][0]["new_files"] == 0


def test_a_receipt_that_the_fleets_signer_does_not_know_is_refused(client: Project) -> None:
    elsewhere = client.folder / "elsewhere"
    (elsewhere / ".sdd").mkdir(parents=True)
    here = {"BERNSTEIN_SVC_FLEET_ENDPOINT": "", "XDG_STATE_HOME": str(elsewhere / "state")}
    local = Project(elsewhere, {**client.environ, **here})
    with local.services() as services:
        services.journal.create_run("r1")
        services.journal.append("r1", "x", {})
        services.journal.finish_run("r1")
        bernstein(local, "keys", "new", "key.pem")
        bernstein(local, "verify", "run", "r1", "--signing-key-path", "key.pem", "-o", "r.json")
        services.supervisor.ask({"do": "stop"})
    with client.services() as services:
        services.journal.create_run("r1")
        services.journal.append("r1", "y", {})
        services.journal.finish_run("r1")

    bernstein(client, "verify", "receipt", "elsewhere/r.json")
    done = bernstein(client, "verify", "receipt", "elsewhere/r.json", "--remote", exits=2)
    assert "the signer's ledger does not know this receipt" in done.stdout
    bernstein(client, "verify", "receipt", "elsewhere", "--remote", exits=2)


def test_an_agent_is_recorded_by_the_proxy_here_and_replayed(client: Project) -> None:
    (client.folder / "agent.py").write_text(AGENT)
    with ModelServer() as model:
        keys: dict[str, Any] = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": model.base_url}
        command = ("--", sys.executable, "agent.py", "hello")
        done = bernstein(client, "record", "--json", *command, **keys)
        run_id = json.loads(done.stdout)["run_id"]
        opened = told(client, "agent", "env", "codex", **keys)
    replayed = bernstein(client, "replay", run_id, "--unsafe-tools", *command)
    bernstein(client, "agent", "end", opened["run_id"])

    assert replayed.stdout.strip() in done.stderr
    assert told(client, "replay", run_id, "--verify")["identity"] == "verified"
    assert told(client, "replay", "explain", run_id)
    assert_nothing_here(client)
    # What was started for a fleet is not used for the services of this host.
    local = bernstein(client, "agent", "env", "codex", exits=1, BERNSTEIN_SVC_ENDPOINT="")
    assert "were started for other services" in local.stderr
    bernstein(client, "services", "stop")


def test_an_agents_steps_are_read_and_exported(client: Project) -> None:
    with client.services() as services:
        services.steps.start("a1", [Step("a" * 64, model="m", prompt="p")])
        services.steps.start("a2", [Step("a" * 64, model="m", prompt="q")])

    assert told(client, "replay", "a1")
    assert bernstein(client, "replay", "debug", "a1").stdout
    bernstein(client, "replay", "diff-journal", "a1", "a2", exits=1)
    bernstein(client, "replay", "export", "a1", "a1.json")
    bernstein(client, "replay", "verify", "a1.json")
    assert len(told(client, "session", "branches", "a1")["branches"]) == 1
    copied = ("session", "branches", "a1", "--copy", "a", "--to", "b")
    assert "the steps are a fleet's" in bernstein(client, *copied, exits=2).stderr
    forked = bernstein(client, "session", "fork", "a1", "--from-step", "1", exits=2)
    assert "they are a fleet's" in forked.stderr
    assert "no journal" in bernstein(client, "replay", "nobody", exits=1).stderr.lower()


def test_runs_of_the_peer_are_imported(client: Project) -> None:
    runs = client.folder / "peer" / ".sdd" / "runs" / "20240101-000000"
    runs.mkdir(parents=True)
    line, _ = next_row(START, "run_started", b"{}", 1.0, 0.0)
    (runs / "journal.jsonl").write_bytes(line + b"\n")
    done = told(client, "import", str(client.folder / "peer"))

    assert done["runs"][0]["rows"] == 1
    assert not client.sdd.exists()


def test_the_live_page_of_a_fleets_run_is_served_here(client: Project) -> None:
    with client.services() as services:
        services.journal.create_run("r1")
        services.journal.append("r1", "x", {"n": 1})
        services.journal.finish_run("r1")
    assert told(client, "view", "r1")["url"].startswith("http://127.0.0.1:")
    assert bernstein(client, "follow", "r1", "--stream", "--json").stdout
    assert_nothing_here(client)


def test_what_is_for_the_services_own_host_says_so(
    client: Project, host: tuple[Fleet, ServiceHost]
) -> None:
    for arguments in (
        ("services", "start"),
        ("services", "init"),
        ("services", "logs", "journal"),
        ("admin", "migrate"),
    ):
        done = bernstein(client, *arguments, exits=1)
        assert "is for the host of the services" in done.stderr, arguments
    with client.services() as services:
        services.journal.create_run("r1")
        services.journal.append("r1", "x", {})
        services.journal.finish_run("r1")
    bernstein(client, "keys", "new", "key.pem")
    own_key = bernstein(client, "verify", "run", "r1", "--signing-key-path", "key.pem", exits=2)
    assert "are signed by its signer" in own_key.stderr


def test_status_and_doctor_say_how_each_service_is(
    client: Project, host: tuple[Fleet, ServiceHost]
) -> None:
    port = host[1].endpoint.base_port
    found = told(client, "services", "status")["fleet"]
    assert [(each["service"], each["seen"]) for each in found] == [
        (name, "serving") for name in ("journal", "recorder", "rederiver", "signer")
    ]
    with_dead = f"{client.environ['BERNSTEIN_SVC_ENDPOINT']},127.0.0.1:1"
    status = bernstein(client, "services", "status", exits=1, BERNSTEIN_SVC_ENDPOINT=with_dead)
    assert "journal at 127.0.0.1:1 is away" in status.stdout
    doctor = told(client, "services", "doctor")
    names = [check["name"] for check in doctor["checks"] if check["ok"]]
    assert f"journal at 127.0.0.1:{port}" in names


def test_what_is_longer_than_a_message_goes_in_parts(client: Project) -> None:
    long = "x" * 2_000_000
    with client.services() as services:
        for number in range(3):
            services.journal.create_run(f"r{number}", metadata=json.dumps({"x": long}).encode())
            for part in (long, f"{number}{long}"):
                services.journal.append(f"r{number}", "x", {"text": part})
        listed = list(services.journal.list_runs())
        found = services.journal.diff_runs("r0", "r1")
        rows = b"".join(services.journal.read_journal("r0"))

    assert sorted(run.run_id for run in listed) == ["r0", "r1", "r2"]
    assert (found.diverged, found.index, "more than an answer carries" in found.note) == (
        True,
        1,
        True,
    )
    assert len(rows) > 4_000_000


WRITER_ONLY = """
[[grant]]
caller = "one"
role = "service"
origins = ["*"]
runs = ["*"]
[[grant]]
caller = "build-1"
role = "writer"
origins = ["fleet:demo"]
runs = ["*"]
"""


def test_a_host_that_may_only_write_runs_replays_and_verifies_its_own(tmp_path: Path) -> None:
    with fleet_in(tmp_path / "fleet", BERNSTEIN_SVC_FLEET_ORIGIN="fleet:demo") as fleet:
        fleet.roles.write_text(WRITER_ONLY)
        made = fleet.host("one")
        made.start("journal", "recorder", "signer")
        client = fleet.client("build-1", made)
        copy_example(client.folder)
        with ModelServer() as model:
            keys: dict[str, Any] = {"OPENAI_API_KEY": "sk-t", "OPENAI_BASE_URL": model.base_url}
            ran = told(client, "run", "plan.yaml", BERNSTEIN_DETERMINISTIC_SEED="42", **keys)
        run_id = ran["run_id"]
        told(client, "run", "plan.yaml", BERNSTEIN_REPLAY_RUN_ID=run_id)
        assert told(client, "replay", run_id, "--verify")["identity"] == "verified"
        assert bernstein(client, "replay", run_id).stdout
        listed = bernstein(client, "replay", "list", exits=1)
        assert "build-1 may not call ListRuns" in listed.stderr
