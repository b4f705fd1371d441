"""The checks of `bernstein services doctor`: what was looked at, what was seen, what to do."""

import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bernstein_cli.fleet_health import fleet_health
from bernstein_cli.peer import PEER_VARIABLE, find_peer, peer_version
from bernstein_cli.store_process import ask_store
from bernstein_formats.errors import BernsteinError, Conflict
from bernstein_runtime import VERSION
from bernstein_runtime.channel import open_channel
from bernstein_runtime.config import (
    FleetConfig,
    ListenConfig,
    MetricsConfig,
    RecorderConfig,
    SignerConfig,
    StoreConfig,
    SupervisorConfig,
    TlsConfig,
    TracingConfig,
    load_table,
)
from bernstein_runtime.lock import LockFile
from bernstein_runtime.places import Places
from bernstein_runtime.status import error_from
from bernstein_runtime.supervisor import Supervisor

_SOCKET_PATH_BYTES_MAX: Final = 107
_OLDEST_PYTHON: Final = (3, 11)
_HEALTH_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `advice` says what to do when it is bad."""

    name: str
    ok: bool
    seen: str
    advice: str = ""


def checks(places: Places, environ: Mapping[str, str]) -> Iterator[Check]:
    """All checks. They start nothing and write nothing."""
    supervisor = Supervisor(places, environ)
    yield from _program()
    yield _peer(environ)
    yield from _folders(places)
    yield _configuration(places, environ)
    yield _store(places, environ)
    yield from _fleet(places, environ)
    yield _socket_length(places)
    answer = supervisor.ask({"do": "status"})
    yield _lock(places, answers=answer is not None)
    yield _leftovers(places, answers=answer is not None)
    if answer is not None:
        yield _version(str(answer.get("version")))
        for service in answer.get("services", []):
            yield _health(places, str(service["service"]))


def _program() -> Iterator[Check]:
    yield Check("version", True, f"bernstein-services {VERSION}")
    yield Check(
        "python",
        sys.version_info >= _OLDEST_PYTHON,
        f"{platform.python_version()} on {platform.system()}",
        "install Python 3.11 or newer",
    )
    fast = find_spec("orjson") is not None
    yield Check("orjson", True, "in use" if fast else "absent: the standard library serves")


def _peer(environ: Mapping[str, str]) -> Check:
    tested = f"tested with its release {peer_version()}"
    try:
        found = find_peer(environ)
    except BernsteinError as error:
        return Check("peer", False, error.message, f"correct or unset {PEER_VARIABLE}")
    where = "not installed" if found is None else f"{found.path} ({found.found})"
    return Check("peer", True, f"{where}; {tested}")


def _configuration(places: Places, environ: Mapping[str, str]) -> Check:
    tables: tuple[tuple[type[Any], str], ...] = (
        (SupervisorConfig, "supervisor"),
        (RecorderConfig, "recorder"),
        (SignerConfig, "signer"),
        (StoreConfig, "store"),
        (FleetConfig, "fleet"),
        (ListenConfig, "listen"),
        (TlsConfig, "tls"),
        (MetricsConfig, "metrics"),
        (TracingConfig, "tracing"),
    )
    try:
        for kind, name in tables:
            load_table(kind, name, places.state_dir, environ)
    except BernsteinError as error:
        return Check("configuration", False, error.message, "correct that setting")
    return Check("configuration", True, "every setting is known")


def _store(places: Places, environ: Mapping[str, str]) -> Check:
    """Where evidence is kept; a database is looked at as services do."""
    try:
        if not load_table(StoreConfig, "store", places.state_dir, environ).url:
            return Check("store", True, f"files in {places.sdd_dir}")
        found = ask_store("check", places.sdd_dir, environ=environ)
    except BernsteinError as error:
        return Check("store", False, error.message, "services do not start until that is mended")
    version, migration = found["server_version"], found["migration"]
    return Check(
        "store",
        True,
        f"{found['place']}, origin {found['origin']} (PostgreSQL {version}, migration {migration})",
    )


def _fleet(places: Places, environ: Mapping[str, str]) -> Iterator[Check]:
    """The services of other hosts that are asked from here."""
    try:
        for each in fleet_health(places.state_dir, environ):
            advice = "the line says what to look at; operations are done on that host"
            yield Check(f"{each.service} at {each.address}", each.ok, each.seen, advice)
    except BernsteinError as error:
        yield Check("fleet", False, error.message, "correct [fleet] and [tls]")


def _folders(places: Places) -> Iterator[Check]:
    folders = (
        ("state folder", places.sdd_dir),
        ("runtime folder", places.runtime_dir),
        ("secrets folder", places.secrets_dir),
    )
    for name, folder in folders:
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        ok = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
        made = "" if folder == nearest else " (not made yet)"
        yield Check(name, ok, f"{folder}{made}", f"make {nearest} a folder that you can write to")


def _socket_length(places: Places) -> Check:
    size = len(os.fsencode(places.socket("supervisor")))
    return Check(
        "socket path",
        size <= _SOCKET_PATH_BYTES_MAX,
        f"{size} of {_SOCKET_PATH_BYTES_MAX} bytes",
        "set XDG_RUNTIME_DIR to a shorter folder",
    )


def _lock(places: Places, *, answers: bool) -> Check:
    """A supervisor that holds its lock must answer."""
    path = places.state_dir / "supervisor.lock"
    held = path.exists() and _is_held(path)
    seen = "held by a supervisor that answers" if answers else "held" if held else "free"
    advice = f"a supervisor hangs: find it with `fuser {path}` and end it"
    return Check("lock", answers or not held, seen, advice)


def _is_held(path: Path) -> bool:
    try:
        with LockFile(path):
            return False
    except Conflict:
        return True


def _leftovers(places: Places, *, answers: bool) -> Check:
    sockets = set(places.runtime_dir.glob("*.sock"))
    if answers:
        sockets.discard(places.socket("supervisor"))
    left = sorted(path.name for path in sockets if not _accepts(path))
    seen = f"{', '.join(left)} (replaced at the next start)" if left else "none"
    return Check("leftover sockets", True, seen)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_HEALTH_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _version(running: str) -> Check:
    return Check(
        "running version",
        running == VERSION,
        running,
        "the next command restarts the services; or do it now: `bernstein services stop`",
    )


def _health(places: Places, service: str) -> Check:
    """Ask a service itself (grpc.health.v1)."""
    channel = open_channel(places.socket(service))
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_SECONDS)
        state = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    except grpc.RpcError as error:
        state = error_from(error).message
    finally:
        channel.close()
    return Check(
        service, state == "SERVING", state.lower(), f"see `bernstein services logs {service}`"
    )
