"""The configuration that operators are given, on a host of its own: a run is recorded, sealed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import HOST, Fleet, fleet_in, free_base_port
from tests.observed import Observed
from tests.postgres_server import PostgresServer

from bernstein_cli.fleet_checks import fleet_checks
from bernstein_runtime.clock import SystemClock

pytestmark = pytest.mark.processes
DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIG = DEPLOY / "bernstein.toml"
# Of a service host, in the place of those of the file.
FILES = ("service.pem", "service-key.pem", "ca.pem")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path / "fleet") as made:
        yield made


def test_services_with_the_given_configuration_serve_a_fleet_and_are_observed(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    host = fleet.host("journal1")
    observed = Observed(free_base_port())
    given = [v for k, v in host.environ.items() if k.startswith("BERNSTEIN_SVC_TLS_")]
    text = CONFIG.read_text()
    for name, path in zip(FILES, given, strict=True):
        text = text.replace(f"/etc/bernstein/tls/{name}", path)
    text = text.replace("/etc/bernstein/roles.toml", str(DEPLOY / "roles.toml"))
    text = text.replace("journal1.example", f"{HOST}:{host.endpoint.base_port}")
    text = re.sub(r'(?m)^url = ".*"$', f'url = "{postgres.database()}"', text)
    text = re.sub(r'(?m)^password_file = ".*"$', 'password_file = ""', text)
    text = text.replace("127.0.0.1:7441", f"{HOST}:{observed.base_port}").replace("7435", "0")
    (host.folder / "bernstein.toml").write_text(text)
    kept = {k: v for k, v in host.environ.items() if not k.startswith("BERNSTEIN_SVC_")}
    host.environ = kept | {"BERNSTEIN_SVC_CONFIG": str(host.folder / "bernstein.toml")}

    host.start("journal", "recorder", "rederiver", "signer")
    host.start("gateway", wait=False)
    with fleet.client("build-1", host).services() as services:
        run_id = services.journal.create_run()
        services.journal.append(run_id, "x", {"n": 1})
        finished = services.journal.finish_run(run_id)

    operator = fleet.client("ops", host)
    with operator.services() as services:
        said = {
            each.name: each
            for each in fleet_checks(services.places, operator.environ, SystemClock())
        }

    assert finished.row_count == 1
    for service in ("journal", "recorder"):
        line = said[f"{service} at {host.endpoint.address(service)}"]
        assert line.ok
        assert "migration" in line.seen
        assert "synchronous_commit on" in line.seen
    assert said["one store"].ok
    for service in ("journal", "recorder", "rederiver", "signer"):
        assert observed.get(service, "/readyz") == (200, "ready\n")
        assert observed.value(service, "bernstein_certificate_expires_seconds") > 1.7e9
    assert observed.value("signer", "bernstein_sealed_runs_total") == 1
