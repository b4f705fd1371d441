"""Three database hosts on loopback as deploy/patroni configures them, killed and frozen whole.

All that a host runs has its working folder inside the host's folder: by that it is found, whoever
its parent is by now.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.failover.patroni_programs import DEPLOYED, PYTHON, patroni_programs
from tests.fleet import HOST, Authority
from tests.postgres_server import OWNER, SERVICE, installed
from tests.suspended import suspend

from bernstein_runtime.config import StoreConfig
from bernstein_store.postgres.pool import connected
from bernstein_store.postgres.schema import migrate
from bernstein_store.postgres.target import target_of

DATABASES: Final = ("db1", "db2", "db3")
PORTS: Final = ("postgresql_port", "patroni_port", "etcd_port", "etcd_peer_port")
# As tests.fleet names them, and as a host of the database has them.
CERTIFICATES: Final = ("node.pem", "node.key.pem", "ca.pem")
SECONDS_MAX: Final = 120.0


class DatabaseCluster:
    """Started when made; `remove` leaves nothing of it. With one etcd it is a host by itself, with
    three they are on the database's hosts and share their fate."""

    def __init__(self, *, etcd_on_databases: bool = False) -> None:
        self._programs = patroni_programs()
        server = installed()
        assert server is not None, "PostgreSQL is needed: apt-get install postgresql"
        self.folder = Path(tempfile.mkdtemp(prefix="bernstein-ha-", dir="/tmp"))
        self._voters = DATABASES if etcd_on_databases else ("etcd",)
        self._ports = {name: _free_ports(len(PORTS)) for name in {*DATABASES, *self._voters}}
        self._started: list[subprocess.Popen[bytes]] = []
        self._as: Sequence[str] = ()
        user = "postgres" if os.getuid() == 0 else os.environ["USER"]
        if os.getuid() == 0:
            self._as = ("--reuid=postgres", "--regid=postgres", "--clear-groups")
        self._user = user
        self._write(str(server))
        try:
            self._start()
        except BaseException:
            self.remove()
            raise

    def _write(self, programs: str) -> None:
        """Certificates and configuration, by the script that an operator uses."""
        nodes = self.folder / "nodes.toml"
        lines = [f'cluster = "test"\ndatabases = {list(DATABASES)}\netcd = {list(self._voters)}']
        authority = Authority(self.folder / "pki")
        for name, ports in self._ports.items():
            place = self.folder / name
            place.mkdir(mode=0o700)
            for paths in zip(authority.issue(name, HOST).values(), CERTIFICATES, strict=True):
                shutil.copy(paths[0], place / paths[1])
            values = {
                "address": HOST, "listen": HOST, "programs": programs, "system_user": self._user,
                "data": f"{place}/data", "sockets": str(place), "etcd_data": f"{place}/etcd",
                "certificates": str(place), "archive_command": "/bin/true",
            }  # fmt: skip
            lines.append(f"[node.{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            lines += [f"{key} = {port}" for key, port in zip(PORTS, ports, strict=True)]
        nodes.write_text("\n".join(lines) + "\n")
        subprocess.run([PYTHON, DEPLOYED / "render", nodes, self.folder], check=True)
        self.password_file.touch(0o600)
        self.password_file.write_text(secrets.token_hex(16))
        if self._as:
            self.folder.chmod(0o711)
            for name in self._ports:
                for path in (self.folder / name, *(self.folder / name).iterdir()):
                    shutil.chown(path, "postgres", "postgres")

    def _start(self) -> None:
        for name in sorted({*self._voters, *DATABASES}):
            self.start(name)
        self._wait(lambda: bool(self.leader()), "a primary")
        password = self.password_file.read_text()
        for user in (OWNER, SERVICE):
            self.sql(f"create role {user} login password '{password}'")
        self.sql(f"create database bernstein owner {OWNER}")
        with connected(target_of(self.store_config(OWNER))) as connection:
            migrate(connection, "bernstein", SERVICE)
        self.wait_until_whole()

    # What a host does.

    def start(self, name: str) -> None:
        """A host, as after a boot."""
        place = self.folder / name
        if name in self._voters:
            self._start_etcd(place)
        if name in DATABASES:
            patroni = str(self._programs / "patroni")
            self._spawn(place, "patroni", patroni, str(place / "patroni.yaml"))

    def _start_etcd(self, place: Path) -> None:
        self._spawn(place, "etcd", "/usr/bin/etcd", "--config-file", str(place / "etcd.yaml"))

    def without_etcd(self, seconds: float) -> None:
        """All of it is killed, and started again after that time."""
        for name in self._voters:
            for pid in self._processes(name):
                if _command(pid).startswith("/usr/bin/etcd"):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(seconds)
        for name in self._voters:
            self._start_etcd(self.folder / name)

    def _spawn(self, place: Path, what: str, *command: str) -> None:
        # If these tests are killed, Patroni still ends its PostgreSQL, and etcd itself.
        as_user = ("setpriv", "--pdeathsig", "TERM", *self._as)
        with (self.folder / f"{place.name}-{what}.log").open("ab") as out:
            self._started.append(
                subprocess.Popen(
                    [*as_user, *command],
                    cwd=place,
                    env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(place)},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )

    def kill(self, name: str) -> None:
        """A host without power."""
        self._signal_all(name, signal.SIGKILL)

    def kill_postgres(self, name: str) -> None:
        """PostgreSQL alone; its Patroni lives."""
        pids = [pid for pid in self._processes(name) if _command(pid).startswith("postgres")]
        pids.append(int((self.folder / name / "data" / "postmaster.pid").read_text().split()[0]))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """A host that stands still: connections to it stay, and nobody answers."""
        frozen: set[int] = set()
        while new := set(self._processes(name)) - frozen:
            for pid in new:
                with suppress(ProcessLookupError, FileNotFoundError):
                    suspend(pid)
            frozen |= new

    def resume(self, name: str) -> None:
        """It goes on, and believes that no time has passed."""
        self._signal_all(name, signal.SIGCONT)

    def _signal_all(self, name: str, number: signal.Signals) -> None:
        signalled: set[int] = set()
        while new := set(self._processes(name)) - signalled:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= new

    def _processes(self, name: str) -> Iterator[int]:
        place = f"{self.folder / name}"
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    where = str((entry / "cwd").readlink()).removesuffix(" (deleted)")
                    if where == place or where.startswith(f"{place}/"):
                        yield int(entry.name)

    def remove(self) -> None:
        for name in self._ports:
            self._signal_all(name, signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._wait(lambda: not any(map(any, map(self._processes, self._ports))), "their end")
        shutil.rmtree(self.folder)

    # What the cluster is.

    def members(self) -> dict[str, dict[str, Any]]:
        """Each database as Patroni sees it: role, state, lag; asked of whoever answers first."""
        place = self.folder / DATABASES[0]
        context = ssl.create_default_context(cafile=str(place / "ca.pem"))
        context.load_cert_chain(place / "node.pem", place / "node.key.pem")
        for name in DATABASES:
            url = f"https://{HOST}:{self._port(name, 'patroni_port')}/cluster"
            with suppress(OSError), urllib.request.urlopen(url, timeout=2, context=context) as told:
                return {each["name"]: each for each in json.loads(told.read())["members"]}
        return {}

    def leader(self) -> str:
        """The primary that runs, or nothing."""
        found = [
            name
            for name, each in self.members().items()
            if each["role"] == "leader" and each["state"] == "running"
        ]
        return found[0] if found else ""

    def synchronous(self) -> str:
        """The standby that commits wait for, or nothing."""
        roles = {each["role"]: name for name, each in self.members().items()}
        return roles.get("sync_standby", "")

    def wait_until_whole(self) -> None:
        """A primary, a synchronous standby, and nobody left behind."""

        def whole() -> bool:
            states = sorted((each["role"], each["state"]) for each in self.members().values())
            return states == [
                ("leader", "running"), ("replica", "streaming"), ("sync_standby", "streaming"),
            ]  # fmt: skip

        self._wait(whole, "three databases")

    def wait_for_leader(self, *, other_than: str) -> str:
        self._wait(lambda: self.leader() not in {"", other_than}, "another primary")
        return self.leader()

    def url(self, user: str = SERVICE) -> str:
        """For services: all three hosts."""
        hosts = ",".join(HOST for _ in DATABASES)
        ports = ",".join(str(self._port(name, "postgresql_port")) for name in DATABASES)
        safe = f"sslmode=verify-full&sslrootcert={self.folder / 'pki' / 'ca.pem'}"
        return f"postgresql://{user}@/bernstein?host={hosts}&port={ports}&{safe}"

    def store_config(self, user: str = SERVICE) -> StoreConfig:
        return StoreConfig(url=self.url(user), password_file=str(self.password_file))

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    def sql(self, text: str, name: str = "", database: str = "postgres") -> str:
        """As superuser on that host, the primary without a name; what psql says, unadorned."""
        name = name or self.leader()
        identity = ("setpriv", *self._as) if self._as else ()
        options = ("-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder / name))
        port = ("-p", str(self._port(name, "postgresql_port")), "-d", database)
        done = subprocess.run(
            [*identity, "psql", *options, *port],
            input=text,
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def _port(self, name: str, which: str) -> int:
        return self._ports[name][PORTS.index(which)]

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + SECONDS_MAX
        while not until():
            assert time.monotonic() < give_up, f"waited for {what}: {self.members()}"
            time.sleep(0.2)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _free_ports(count: int) -> list[int]:
    """Free a moment ago; held together, so that they differ."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
