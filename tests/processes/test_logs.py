"""What the services' logs tell: one request followed through all of them, and never a secret."""

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import Project

from bernstein_client.connection import Services
from bernstein_formats.errors import RunNotFound
from bernstein_runtime import trace

pytestmark = pytest.mark.processes


def logged(services: Services, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in services.places.log(name).read_bytes().splitlines()]


def test_one_request_is_followed_from_the_journal_to_the_signer_by_its_trace(
    services: Services,
) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {"secret": "sk-never-logged"})
    asked = trace.new_trace()
    with trace.within(asked):
        services.journal.finish_run(run_id)
    services.journal.get_run(run_id)

    calls = [
        (line["service"], line["method"])
        for name in ("journal", "signer")
        for line in logged(services, name)
        if line["event"] == "rpc" and line.get("trace_id") == asked.trace_id
    ]

    assert ("journal", "FinishRun") in calls
    assert ("signer", "SealRun") in calls
    assert ("journal", "GetRun") not in calls


def test_a_call_s_line_names_its_run_and_its_request_and_no_payload(services: Services) -> None:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "x", {"secret": "sk-never-logged"})
    services.journal.finish_run(run_id)

    (append,) = [
        line for line in logged(services, "journal") if line.get("method") == "AppendEvents"
    ]
    (seal,) = [line for line in logged(services, "signer") if line.get("method") == "SealRun"]

    assert append["run_id"] == seal["run_id"] == run_id
    assert append["request_id"]
    assert seal["origin"].endswith(str(services.places.sdd_dir.parent))
    assert len(append["trace_id"]) == 32
    for name in ("journal", "signer"):
        assert b"sk-never-logged" not in services.places.log(name).read_bytes()


def test_a_command_never_logs_to_where_its_data_goes(project: Project) -> None:
    code = (
        "import sys, structlog; from pathlib import Path\n"
        "from bernstein_client.connection import Services\n"
        "from bernstein_runtime.trace import of_command\n"
        "of_command('bernstein follow')\n"
        "Services(Path(sys.argv[1])).connector\n"
        "structlog.get_logger().warning('certificate_not_renewed')\n"
        "structlog.get_logger().info('certificate_renewed')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(project.sdd)],
        env=dict(project.environ), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert ran.stdout == ""
    assert json.loads(ran.stderr)["event"] == "certificate_not_renewed"


@pytest.mark.parametrize("run_id", ["r" * 100_000, "a\0b"])
def test_an_id_that_no_run_can_have_is_that_of_no_run_and_its_line_is_short(
    services: Services, run_id: str
) -> None:
    with pytest.raises(RunNotFound):
        services.journal.get_run(run_id)
    with pytest.raises(RunNotFound):
        services.journal.append(run_id, "x", {})
    (line,) = [each for each in logged(services, "journal") if each.get("method") == "GetRun"]

    assert line["run_id"] == run_id[:128]
