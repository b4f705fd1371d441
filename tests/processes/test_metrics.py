"""Each documented metric is there, and moves when its thing happens; probes tell what is so."""

import http.client
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.conftest import Project
from tests.fleet import free_base_port
from tests.follower import following
from tests.observed import HOST, Observed

from bernstein_client.connection import Services
from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import InvalidInput, ReplayMissError, RunNotFound
from bernstein_formats.event_journal import START, next_row
from bernstein_runtime.channel import open_channel
from bernstein_runtime.metrics import TABLE
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
SECRET = "sk-never-shown"  # noqa: S105 - opens nothing


@pytest.fixture
def observed() -> Observed:
    return Observed(free_base_port())


@pytest.fixture
def project(project: Project, observed: Observed) -> Project:
    setting = {"BERNSTEIN_SVC_METRICS_ENDPOINT": f"{HOST}:{observed.base_port}"}
    return replace(project, environ={**project.environ, **setting})


@pytest.fixture
def moved(observed: Observed) -> Callable[..., float]:
    """By how much a sample moved since it was asked for last."""
    before: dict[tuple[str, ...], float] = {}

    def since(service: str, name: str, **labels: str) -> float:
        key = (service, name, *labels.values())
        now = observed.value(service, name, **labels)
        difference = now - before.get(key, 0)
        before[key] = now
        return difference

    return since


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.fixture
def recorded(services: Services) -> Iterator[str]:
    """A run with two rows and a recorded call."""
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {"secret": SECRET})
    with ModelServer() as model:
        given = Provider("openai", model.base_url, SECRET)
        session = services.recorder.open_session(run_id, providers=[given])
        ask(services, session.session_id, "known")
        services.recorder.close_session(session.session_id)
        yield run_id


def ask(services: Services, session_id: str, prompt: str) -> None:
    services.recorder.call(
        session_id, lane="a", model="m", provider="openai", prompt=prompt, temperature="0",
        max_tokens="9",
    )  # fmt: skip


def test_every_documented_metric_is_shown_by_its_services(
    services: Services, observed: Observed, project: Project, tmp_path: Path
) -> None:
    names = {each for metric in TABLE for each in metric.services}
    for name in names - {"import"}:
        services.supervisor.ensure(name)
    run = source_of_a_run(tmp_path)
    with following(project, tmp_path / "peer") as follower:
        follower.until(run_id=run.name)
        every_metric_is_shown(observed, names)


def every_metric_is_shown(observed: Observed, names: set[str]) -> None:
    for name in names:
        shown = observed.names(name)
        wanted = {m.name: m.kind.value.lower() for m in TABLE if name in m.services}
        assert wanted.items() <= shown.items()
        assert not {each for each in shown if each.startswith("bernstein_")} - wanted.keys()


def source_of_a_run(tmp_path: Path) -> Path:
    """The folder of a run of the peer."""
    run = tmp_path / "peer" / ".sdd" / "runs" / "20261201-000000"
    run.mkdir(parents=True)
    line, _ = next_row(START, "run_started", b"{}", 1.5, 0.25)
    (run / "journal.jsonl").write_bytes(line + b"\n")
    return run


def test_a_follower_says_when_it_looked_last_and_what_fails(
    project: Project, observed: Observed, tmp_path: Path
) -> None:
    run = source_of_a_run(tmp_path)
    with following(project, tmp_path / "peer") as follower:
        follower.until(run_id=run.name)
        eventually(lambda: observed.value("import", "bernstein_import_looked_at_seconds") > 0)
        first = observed.value("import", "bernstein_import_looked_at_seconds")
        eventually(lambda: observed.value("import", "bernstein_import_looked_at_seconds") > first)
        assert abs(first - time.time()) < 60
        assert observed.value("import", "bernstein_import_failing") == 0
        assert observed.get("import", "/readyz") == (200, "ready\n")
        (run / "journal.jsonl").write_bytes(b'{"event": "forged"}\n')
        eventually(lambda: observed.value("import", "bernstein_import_failing") == 1)


def test_what_the_journal_does_is_counted(
    services: Services, observed: Observed, moved: Callable[..., float]
) -> None:
    run_id = services.journal.create_run()
    names = [
        "bernstein_appended_rows_total",
        "bernstein_appended_bytes_total",
        "bernstein_store_seconds_count",
    ]
    for name in names:
        moved("journal", name)
    services.journal.append_many(run_id, [("x", {"n": n}) for n in range(3)])
    (rows, size, batches) = [moved("journal", name) for name in names]
    with pytest.raises(RunNotFound):
        services.journal.get_run("no-such-run")
    following = services.journal.watch_rows(run_id)
    next(following)

    assert (rows, batches) == (3, 1)
    assert size == sum(map(len, services.journal.read_journal(run_id)))
    calls = {"method": "AppendEvents", "reason": "OK"}
    assert observed.value("journal", "bernstein_rpcs_total", **calls) == 1
    assert observed.value("journal", "bernstein_rpcs_total", reason="RUN_NOT_FOUND") == 1
    assert observed.value("journal", "bernstein_rpc_seconds_count", method="AppendEvents") == 1
    assert observed.value("journal", "bernstein_open_followers") == 1
    assert observed.value("journal", "bernstein_queued_appends") == 0
    services.journal.finish_run(run_id)
    assert list(following)
    eventually(lambda: observed.value("journal", "bernstein_open_followers") == 0)


def test_what_the_signer_does_is_counted(services: Services, observed: Observed) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    services.journal.finish_run(run_id, spine_seal=False)

    assert observed.value("signer", "bernstein_sealed_runs_total") == 1
    assert observed.value("signer", "bernstein_ledger_entries") == 1
    (ledger,) = services.places.secrets_dir.rglob("ledger.jsonl")
    assert observed.value("signer", "bernstein_ledger_bytes") == ledger.stat().st_size


def test_known_gaps_of_the_peers_recordings_are_counted(
    services: Services, observed: Observed
) -> None:
    run_id = services.journal.create_run()
    events: list[tuple[str, dict[str, Any]]] = [
        ("tick_start", {"tick": 1}),
        ("plan.graph.full", {"nodes": [{"id": "a"}, {"id": "b", "depends_on": ["a"]}]}),
        ("task_claimed", {"task_id": "a"}),
        ("tick_start", {"tick": 2}),
        ("task_claimed", {"task_id": "b"}),
        ("task_completed", {"task_id": "a"}),
    ]
    services.journal.append_many(run_id, events)
    (found,) = services.rederiver.rederive_run(run_id).findings

    assert (found.reason, found.index) == ("claim_before_completion", 4)
    counted = {"reason": "claim_before_completion"}
    assert observed.value("rederiver", "bernstein_schedule_findings_total", **counted) == 1


def test_a_replay_s_misses_are_counted_and_no_secret_is_shown(
    services: Services, recorded: str, observed: Observed
) -> None:
    replay_id = services.journal.create_run()
    replay = services.recorder.open_session(replay_id, replay_run_id=recorded)
    ask(services, replay.session_id, "known")
    with pytest.raises(ReplayMissError):
        ask(services, replay.session_id, "unknown")

    assert observed.value("recorder", "bernstein_replay_misses_total") == 1
    assert observed.value("recorder", "bernstein_appended_rows_total") >= 1
    for name in ("journal", "recorder"):
        assert SECRET not in observed.get(name, "/metrics")[1]


def test_lanes_and_exchanges_of_agents_are_counted(services: Services, observed: Observed) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {})
    with ModelServer() as model, ProxyClient(services.supervisor) as proxy:
        lane = LaneWanted(run_id, "a", "", 0, (Provider("openai", model.base_url, SECRET),))
        base = proxy.open_lane(lane)
        assert observed.value("proxy", "bernstein_open_lanes") == 1
        address, _, path = base.removeprefix("http://").partition("/")
        post(address, f"/{path}/openai/v1/chat/completions")
        proxy.close_lane()

    assert observed.value("proxy", "bernstein_exchanges_total") == 1
    assert observed.value("proxy", "bernstein_open_lanes") == 0


def post(address: str, path: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=20)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    connection.getresponse().read()
    connection.close()


def test_probes_tell_life_from_readiness(services: Services, observed: Observed) -> None:
    runs = services.places.sdd_dir / "runs"
    services.journal.create_run()
    assert observed.get("journal", "/livez") == (200, "alive\n")
    assert observed.get("journal", "/readyz") == (200, "ready\n")
    assert health(services, "bernstein_api.journal.v1.JournalService") == "SERVING"
    assert observed.value("journal", "bernstein_ready") == 1
    assert observed.value("journal", "bernstein_disk_free_bytes") > 0

    shutil.rmtree(runs)
    runs.write_text("not a folder")
    eventually(lambda: observed.get("journal", "/readyz") == (503, "STORE_FAILED\n"))
    eventually(lambda: health(services, "bernstein_api.journal.v1.JournalService") == "NOT_SERVING")
    assert health(services, "") == "SERVING"
    assert observed.get("journal", "/livez")[0] == 200
    assert observed.value("journal", "bernstein_ready") == 0

    runs.unlink()
    eventually(lambda: observed.get("journal", "/readyz")[0] == 200)


def health(services: Services, name: str) -> str:
    with open_channel(services.places.socket("journal")) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(request, timeout=10)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def test_without_the_setting_nothing_listens(project: Project, observed: Observed) -> None:
    environ = {k: v for k, v in project.environ.items() if "METRICS" not in k}
    with replace(project, environ=environ).services() as services:
        services.journal.create_run()
        with pytest.raises(ConnectionRefusedError):
            observed.get("journal", "/metrics")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:x", "nowhere.invalid:7441", "http://127.0.0.1"])
def test_an_endpoint_where_nothing_can_listen_is_named(project: Project, endpoint: str) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_METRICS_ENDPOINT": endpoint}
    with (
        replace(project, environ=environ).services() as services,
        pytest.raises(InvalidInput, match=r"\[metrics\] endpoint"),
    ):
        services.journal.create_run()
