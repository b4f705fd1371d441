"""The small CA: what it issues is taken by gRPC for what it is meant for, and for nothing else."""

import json
import stat
from collections.abc import Iterator
from concurrent import futures
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from grpc_health.v1 import health, health_pb2_grpc

from bernstein_cli.authority import Authority, Use, make_authority
from bernstein_cli.main import cli
from bernstein_formats.errors import Conflict, InvalidInput, KeyUnusable

NOW = datetime.now(UTC).replace(microsecond=0)


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["admin", "pki", *map(str, words)], standalone_mode=False)


def facts(*words: object) -> dict[str, object]:
    done = run(*words, "--json")
    assert done.return_value == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    make_authority(tmp_path / "pki", "test", NOW)
    return tmp_path / "pki"


def pair(made: dict[str, object]) -> tuple[bytes, bytes]:
    return Path(str(made["key_path"])).read_bytes(), Path(str(made["path"])).read_bytes()


@pytest.fixture
def address(ca: Path) -> Iterator[str]:
    """A server that wants certificates of the CA."""
    made = facts("issue", ca, "journal1", "--role", "service", "--host", "127.0.0.1")
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    root = (ca / "ca.pem").read_bytes()
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([pair(made)], root, require_client_auth=True)
    )
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def answer(address: str, ca: Path, made: dict[str, object]) -> grpc.StatusCode | None:
    key, certificate = pair(made)
    credentials = grpc.ssl_channel_credentials((ca / "ca.pem").read_bytes(), key, certificate)
    with grpc.secure_channel(address, credentials) as channel:
        check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/grpc.health.v1.Health/Check"
        )
        code = check.future(b"", timeout=10).code()
    return None if code is grpc.StatusCode.OK else code


def test_a_caller_reaches_a_service_by_certificates_of_one_ca(address: str, ca: Path) -> None:
    made = facts("issue", ca, "host1", "--role", "caller")
    assert answer(address, ca, made) is None


def test_a_caller_of_another_ca_does_not(address: str, ca: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_authority(other, "test", NOW)
    made = facts("issue", other, "host1", "--role", "caller")
    assert answer(address, ca, made) is grpc.StatusCode.UNAVAILABLE


def test_a_callers_certificate_serves_nobody(ca: Path) -> None:
    made = facts("issue", ca, "host1", "--role", "caller")
    root = (ca / "ca.pem").read_bytes()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    credentials = grpc.ssl_server_credentials([pair(made)], root, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        found = answer(f"127.0.0.1:{port}", ca, made)
        assert found is grpc.StatusCode.UNAVAILABLE
    finally:
        server.stop(None)


def test_keys_are_their_owners_alone(ca: Path) -> None:
    made = facts("issue", ca, "host1", "--role", "caller")
    for path in (ca / "ca-key.pem", Path(str(made["key_path"]))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_no_file_is_ever_overwritten(ca: Path) -> None:
    before = {path: path.read_bytes() for path in ca.rglob("*.pem")}
    assert isinstance(run("init", ca).exception, Conflict)
    first = facts("issue", ca, "host1", "--role", "caller")
    second = facts("issue", ca, "host1", "--role", "caller")
    assert first["path"] != second["path"]
    assert first["key_path"] != second["key_path"]
    assert before == {path: path.read_bytes() for path in before}


def test_what_was_issued_can_be_listed_and_shown(ca: Path) -> None:
    one = facts("issue", ca, "host1", "--role", "caller", "--days", "1")
    hosts = ("--host", "db1.example", "--host", "::1")
    two = facts("issue", ca, "journal1", "--role", "service", *hosts)
    listed = facts("list", ca)["certificates"]
    assert listed == [
        {name: each[name] for name in each if name != "key_path"} for each in (one, two)
    ]
    assert two["hosts"] == ["db1.example", "::1"]
    assert facts("show", two["path"])["name"] == "journal1"
    assert "host1" in run("list", ca).stdout
    assert "db1.example" in run("show", two["path"]).stdout


@pytest.mark.parametrize(
    ("name", "use", "hosts", "days"),
    [
        ("../host", Use.CALLER, [], 1),
        ("", Use.CALLER, [], 1),
        ("host\n1", Use.CALLER, [], 1),
        ("h" * 65, Use.CALLER, [], 1),
        ("host1", Use.SERVICE, [], 1),
        ("host1", Use.CALLER, ["db1.example"], 1),
        ("host1", Use.SERVICE, ["no host"], 1),
        ("host1", Use.CALLER, [], 9999),
    ],
)
def test_what_no_certificate_should_say_is_refused(
    ca: Path, name: str, use: Use, hosts: list[str], days: int
) -> None:
    with pytest.raises(InvalidInput):
        Authority(ca).issue(name, use, hosts, days, NOW)
    assert not list((ca / "issued").iterdir())


def test_a_folder_that_is_no_ca_is_said_to_be_none(ca: Path) -> None:
    (ca / "ca-key.pem").write_bytes(b"no key")
    done = run("issue", ca, "host1", "--role", "caller")
    assert isinstance(done.exception, KeyUnusable)
    assert "ca-key.pem" in str(done.exception)
