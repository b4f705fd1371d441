"""`bernstein-gateway SDD_DIR`: wire the gateway and serve until it is stopped or nobody looks."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from bernstein_client.connection import Services
from bernstein_client.watching import AsyncWatcher
from bernstein_gateway.access import Access, Activity
from bernstein_gateway.app import Routes, make_app
from bernstein_gateway.listening import open_port, open_unix, url_of
from bernstein_runtime.config import GatewayConfig, load_table
from bernstein_runtime.endpoint import is_loopback
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.stopping import stop_event

# How long streams may take to end at a stop.
GRACE_SECONDS = 2
TICK_SECONDS = 0.5


class Server(uvicorn.Server):
    """One listener of two; signals are for the process, not for each."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    config = load_table(GatewayConfig, "gateway", started.places.state_dir, started.environ)
    port = open_port(config)
    asyncio.run(_serve(started, config, port))


async def _serve(started: Started, config: GatewayConfig, port: socket.socket) -> None:
    places, activity, token = started.places, Activity(), secrets.token_urlsafe(24)
    facts = places.runtime_dir / "gateway.json"
    _write_private(facts, {"url": url_of(port, config), "token": token})
    unix = open_unix(places.socket("gateway"))
    with Services(places.sdd_dir, started.environ) as services:
        watcher = AsyncWatcher(services.connector)
        routes = Routes(
            watcher,
            lambda: services.journal,
            lambda: services.macs,
            viewers_max=config.viewers_max,
            heartbeat_seconds=config.heartbeat_seconds,
        )
        app = Access(
            make_app(routes),
            token=token,
            is_loopback=is_loopback(config.host),
            activity=activity,
        )
        servers = [_server(app), _server(app, config)]
        structlog.get_logger().info("serving", url=url_of(port, config), pid=os.getpid())
        try:
            await _until_stopped(started, activity, servers, [unix, port])
        finally:
            facts.unlink(missing_ok=True)
            await watcher.close()


def _server(app: ASGIApp, config: GatewayConfig | None = None) -> Server:
    certificate = (config and config.tls_certificate_file) or None
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            ssl_certfile=certificate,
            ssl_keyfile=(config and config.tls_key_file) or None,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


async def _until_stopped(
    started: Started, activity: Activity, servers: list[Server], sockets: list[socket.socket]
) -> None:
    stopping = stop_event(started.parent)
    serving = [
        asyncio.create_task(server.serve(sockets=[each]))
        for server, each in zip(servers, sockets, strict=True)
    ]
    started.readiness.watch(lambda: None)
    while (
        not stopping.is_set()
        and started.lock.is_current()
        and activity.idle_seconds() < started.idle_seconds
    ):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), TICK_SECONDS)
    structlog.get_logger().info("stopping")
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving)


def _write_private(path: Path, facts: dict[str, str]) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(facts))  # noqa: TID251 - not evidence


def main() -> None:
    """The command `bernstein-gateway`."""
    service_process("gateway", run)


if __name__ == "__main__":
    main()
