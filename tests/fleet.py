"""A fleet for tests: a CA and its certificates, services that stand by themselves, its clients."""

import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.conftest import Project, environ_of

from bernstein_runtime.endpoint import SERVICES, Endpoint

HOST = "127.0.0.1"
# Whoever has a certificate may do everything.
ALL_GRANTED = "".join(
    f'[[grant]]\ncaller = "*"\nrole = "{role}"\norigins = ["*"]\nruns = ["*"]\n'
    for role in ("writer", "operator", "service")
)
START_SECONDS = 30.0


class Authority:
    """A CA of its own; certificates are files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"test CA {secrets.token_hex(4)}")
        built = _built(self._name, self._name, self._key, timedelta(days=1))
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(
        self, name: str, *hosts: str, lasts: timedelta = timedelta(hours=1)
    ) -> dict[str, str]:
        """A certificate for a caller (and server) `name`; the settings that use it."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(f"bernstein://caller/{name}")
        ]
        for host in hosts:
            with suppress(ValueError):
                names.append(x509.IPAddress(ip_address(host)))
                continue
            names.append(x509.DNSName(host))
        built = _built(_named(name), self._name, key, lasts)
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, key_file = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        key_file.unlink(missing_ok=True)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return {
            "BERNSTEIN_SVC_TLS_CERTIFICATE_FILE": str(certificate),
            "BERNSTEIN_SVC_TLS_KEY_FILE": str(key_file),
            "BERNSTEIN_SVC_TLS_CA_FILE": str(self.ca),
        }


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _built(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    began = datetime.now(UTC) - timedelta(days=2)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + timedelta(days=2) + lasts)
    )


@dataclass
class ServiceHost:
    """One host of a fleet: a state folder and the services that were started on it."""

    folder: Path
    environ: Mapping[str, str]
    endpoint: Endpoint
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, *services: str, wait: bool = True) -> None:
        """Start services and wait until they listen."""
        for service in services:
            log = self.folder / f"{service}.log"
            with log.open("ab") as errors:
                self.running[service] = subprocess.Popen(
                    [sys.executable, "-m", f"bernstein_{service}", str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    env=dict(self.environ),
                )
        for service in services if wait else ():
            self._wait(service)

    def _wait(self, service: str) -> None:
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            assert self.running[service].poll() is None, self.log(service)
            with (
                suppress(OSError),
                socket.create_connection((HOST, self.endpoint.port(service)), 1),
            ):
                return
            time.sleep(0.02)
        raise AssertionError(f"{service} does not listen: {self.log(service)}")

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def kill(self, service: str) -> None:
        """As by a power cut."""
        process = self.running.pop(service)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()
        self.running.clear()


class Fleet:
    """Hosts and clients that trust one CA."""

    def __init__(self, folder: Path, **more: str) -> None:
        """`more`: variables of all services."""
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.roles = folder / "roles.toml"
        self.roles.write_text(ALL_GRANTED)
        self._more = more
        self._opened = ExitStack()

    def host(self, name: str, **more: str) -> ServiceHost:
        """A host without services yet; it finds the others at the fleet's first host."""
        folder = self.folder / name
        (folder / "home").mkdir(parents=True)
        endpoint = Endpoint(HOST, free_base_port())
        where = f"{HOST}:{endpoint.base_port}"
        environ = {
            **environ_of(folder / "home"),
            **self.authority.issue(name, HOST),
            "BERNSTEIN_SVC_LISTEN_ENDPOINT": where,
            "BERNSTEIN_SVC_ACCESS_FILE": str(self.roles),
            "BERNSTEIN_SVC_ENDPOINT": where,
            **self._more,
            **more,
        }
        made = ServiceHost(folder, environ, endpoint)
        self._opened.callback(made.stop)
        return made

    def client(self, name: str, *hosts: ServiceHost, **more: str) -> Project:
        """A project on a host that has no services of its own."""
        folder = self.folder / name
        (folder / "home").mkdir(parents=True)
        where = ",".join(f"{HOST}:{each.endpoint.base_port}" for each in hosts)
        environ = {
            **environ_of(folder / "home"),
            **self.authority.issue(name),
            "BERNSTEIN_SVC_ENDPOINT": where,
            "BERNSTEIN_SVC_FLEET_ORIGIN": "fleet:demo",
            **more,
        }
        made = Project(folder, environ)
        self._opened.callback(_end_local, made)
        return made

    def close(self) -> None:
        self._opened.close()


def _end_local(project: Project) -> None:
    """Its proxy, if it had one."""
    if project.sdd.is_dir():
        with project.services() as services:
            services.supervisor.ask({"do": "stop"})


def free_base_port() -> int:
    """The first of five ports that nobody listens on."""
    while True:
        base = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), ExitStack() as opened:
            for number in range(len(SERVICES)):
                probe = opened.enter_context(socket.socket())
                probe.bind((HOST, base + number))
            return base


@contextmanager
def fleet_in(folder: Path, **more: str) -> Iterator[Fleet]:
    """Its services are ended afterwards."""
    made = Fleet(folder, **more)
    try:
        yield made
    finally:
        made.close()
