"""The life of a service process up to serving: greeting, places, lock; a refusal is one log line.

The supervisor greets with one line on standard input: the token that the journal shows the signer.
The pipe stays open as long as the supervisor lives, and a service ends with it. A service started
by something else (standard input empty) has no token and stands by itself. Standard output is for
a refusal alone, so that it reaches whoever asked also when no log can be written. In a fleet a
service stands by itself and listens where `[listen]` says.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.config import (
    AccessConfig,
    ListenConfig,
    SupervisorConfig,
    load_table,
)
from bernstein_runtime.connector import Connector, connector_for
from bernstein_runtime.endpoint import Endpoint, is_loopback, parse_endpoint
from bernstein_runtime.lock import LockFile
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.observed import observed
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import Places, make_state, places_for
from bernstein_runtime.readiness import Readiness
from bernstein_runtime.refusal import refusal_of
from bernstein_runtime.reread_file import RereadFile
from bernstein_runtime.role_table import RoleTable, parse_role_table
from bernstein_runtime.server import Listener
from bernstein_runtime.supervisor import Supervisor
from bernstein_runtime.tls import tls_files
from bernstein_runtime.traced import traced

# A service whose supervisor was killed finishes its calls before it gives the lock up.
LOCK_WAIT_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Started:
    """What a service process knows when it begins."""

    name: str
    places: Places
    environ: Mapping[str, str]
    token: bytes
    parent: int | None
    idle_seconds: float
    lock: LockFile
    readiness: Readiness = field(default_factory=Readiness)

    def listener(self, token: bytes = b"") -> Listener:
        """Where the service is reached: its own socket, or as `[listen]` says.

        `token` is what callers at the socket must present. Raises InvalidInput.
        """
        socket = self.places.socket(self.name)
        listen = self.listens_at()
        if listen is None:
            return Listener(
                socket,
                self.idle_seconds,
                token,
                self.parent,
                self.lock.is_current,
                readiness=self.readiness,
            )
        tls = tls_files(self.places.state_dir, self.environ)
        return Listener(
            socket,
            math.inf,
            holds_place=self.lock.is_current,
            address=listen.address(self.name),
            tls=tls,
            roles=self._roles(has_tls=tls is not None),
            origin=origin_of(self.places, self.environ),
            readiness=self.readiness,
        )

    def _roles(self, *, has_tls: bool) -> RereadFile[RoleTable] | None:
        """The role table; None where callers have no names. Raises InvalidInput."""
        config = load_table(AccessConfig, "access", self.places.state_dir, self.environ)
        if has_tls != bool(config.file):
            raise InvalidInput(
                "[access] file is not set: it names the role table, without which nobody may call;"
                " see docs/access.md"
                if has_tls
                else "[access] file is set, and callers have no names without [tls]; set both"
            )
        if not has_tls:
            return None
        path = Path(config.file)
        if not path.is_absolute():
            raise InvalidInput(f"[access] file: {config.file!r} is not an absolute path")
        return RereadFile(path, "[access] file", parse_role_table)

    def connector(self) -> Connector:
        """To the services that this one calls, by its own certificate. Raises InvalidInput."""
        return connector_for(Supervisor(self.places, self.environ), self.environ)

    def observed(self) -> AbstractContextManager[None]:
        """While it lasts Prometheus and probes find what `[metrics]` promises them."""
        return observed(self.name, self.readiness, self.places, self.environ)

    def traced(self) -> AbstractContextManager[None]:
        """While it lasts a collector is told what `[tracing]` promises it."""
        return traced(f"bernstein-{self.name}", self.places.state_dir, self.environ, _not_exported)

    def listens_at(self) -> Endpoint | None:
        """The endpoint of `[listen]`; None where the service has a socket. Raises InvalidInput."""
        config = load_table(ListenConfig, "listen", self.places.state_dir, self.environ)
        if not config.endpoint:
            return None
        if self.parent is not None:
            raise InvalidInput(
                f"[listen] endpoint is set, so this {self.name} is for a fleet and starts by"
                f" itself, as `bernstein-{self.name} STATE_FOLDER`; name the fleet with"
                " BERNSTEIN_SVC_ENDPOINT"
            )
        endpoint = parse_endpoint(config.endpoint, "[listen] endpoint")
        if not is_loopback(endpoint.host) and not tls_files(self.places.state_dir, self.environ):
            raise InvalidInput(
                f"[listen] endpoint {config.endpoint!r} can be reached from other hosts; set"
                " certificate_file, key_file and ca_file under [tls], or listen on 127.0.0.1",
                host=endpoint.host,
            )
        return endpoint


def service_process(name: str, run: Callable[[Started], None]) -> None:
    """`bernstein-<name> SDD_DIR`: hold the service's lock and `run` it; exit 1 when it refuses."""
    configure_logs(name)
    if len(sys.argv) != 2:
        sys.exit(f"usage: bernstein-{name} STATE_FOLDER")
    refusals = _own_stdout()
    try:
        started = _started(name, Path(sys.argv[1]), os.environ)
        with started.lock, started.observed(), started.traced():
            run(started)
    except BernsteinError as error:
        structlog.get_logger().error("refused", reason=error.reason, error=error.message)
        with suppress(OSError):  # whoever started us may be gone
            os.write(refusals, json.dumps(refusal_of(error)).encode() + b"\n")  # noqa: TID251 - not evidence
        sys.exit(1)


def _not_exported(text: str) -> None:
    structlog.get_logger().warning("spans_lost", error=text)


def _own_stdout() -> int:
    """Standard output for us alone; what anything else prints goes to the log."""
    own = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own


def _started(name: str, sdd_dir: Path, environ: Mapping[str, str]) -> Started:
    greeting = b"" if sys.stdin.isatty() else sys.stdin.buffer.readline()
    places = places_for(sdd_dir, environ)
    make_state(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, environ)
    parent = sys.stdin.fileno() if greeting else None
    wait = 0.0 if parent is None else LOCK_WAIT_SECONDS
    return Started(
        name=name,
        places=places,
        environ=environ,
        token=greeting.strip(),
        parent=parent,
        idle_seconds=config.idle_seconds,
        lock=LockFile(places.state_dir / f"{name}.lock", wait),
    )
