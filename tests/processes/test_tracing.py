"""One command, one trace: through every service, without a word of what it was about."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from tests.collector import Collector, Told
from tests.conftest import Project

from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
SECRET = "sk-never-told"  # noqa: S105 - opens nothing


def bernstein(project: Project, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=project.folder,
        env={**project.environ, **more},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def recorded(project: Project, collector_port: int) -> str:
    """What `bernstein run` says; its services have ended then."""
    copy_example(project.folder)
    setting = {"BERNSTEIN_SVC_TRACING_ENDPOINT": f"127.0.0.1:{collector_port}"}
    with ModelServer() as model:
        keys = {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": SECRET,
            "BERNSTEIN_DETERMINISTIC_SEED": "42",
        }
        ran = bernstein(project, "run", "plan.yaml", **setting, **keys)
    assert ran.returncode == 0, ran.stderr
    bernstein(project, "services", "stop", **setting)
    return ran.stderr


def test_one_run_is_one_connected_trace_through_every_service(project: Project) -> None:
    with Collector() as collector:
        recorded(project, collector.port)

    (root,) = [each for each in collector.spans if each.name == "bernstein run"]
    ours = [each for each in collector.spans if each.trace_id == root.trace_id]
    known = {each.span_id for each in ours}
    assert [each for each in ours if each.parent_id not in known and each != root] == []
    assert {each.service for each in ours} == {
        "bernstein", "bernstein-journal", "bernstein-recorder", "bernstein-signer"
    }  # fmt: skip
    assert way(ours, "SealRun") == ["SealRun", "FinishRun", "bernstein run"]
    assert way(ours, "ask provider") == ["ask provider", "Call", "bernstein run"]
    ways = [way_of(ours, each) for each in ours if each.name == "append to store"]
    assert ["append to store", "AppendEvents", "bernstein run"] in ways
    assert ["append to store", "Call", "bernstein run"] in ways


def way(spans: list[Told], name: str) -> list[str]:
    return way_of(spans, next(each for each in spans if each.name == name))


def way_of(spans: list[Told], span: Told) -> list[str]:
    """From a span up to its root."""
    found = [span.name]
    while span.parent_id:
        span = next(each for each in spans if each.span_id == span.parent_id)
        found.append(span.name)
    return found


def test_spans_tell_ids_and_sizes_and_nothing_else(project: Project) -> None:
    with Collector() as collector:
        recorded(project, collector.port)

    said: dict[str, set[str]] = {}
    for each in collector.spans:
        for name, value in each.attributes.items():
            said.setdefault(name, set()).add(value)
    assert {name.removeprefix("bernstein.") for name in said} <= {
        "agent_id", "bytes", "caller", "error.type", "model", "origin", "provider", "request_id",
        "run_id", "session_id",
    }  # fmt: skip
    assert SECRET not in repr(collector.spans)
    assert "announcement" not in repr(collector.spans)


def test_a_collector_that_is_away_is_nobody_s_trouble(project: Project) -> None:
    with Collector() as gone:
        port = gone.port

    assert "opentelemetry" not in recorded(project, port).lower()
    logs = (project.sdd / "svc" / "logs" / "journal.log").read_text()
    assert "spans_lost" in logs


def test_a_collector_on_another_host_is_told_nothing_in_the_clear(project: Project) -> None:
    copy_example(project.folder)
    ran = bernstein(
        project, "replay", "list", BERNSTEIN_SVC_TRACING_ENDPOINT="collector.example:4317"
    )

    assert ran.returncode == 1
    assert "[tracing] endpoint" in ran.stderr
    assert "INVALID_INPUT" in ran.stderr


def test_a_program_that_is_traced_already_is_one_with_what_it_causes(services: Any) -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("theirs"):
        trace_id = f"{api.get_current_span().get_span_context().trace_id:032x}"
        services.journal.create_run()

    assert trace_id in services.places.log("journal").read_text()
