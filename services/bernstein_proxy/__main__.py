"""`bernstein-proxy SDD_DIR`: wire the proxy and serve until it is stopped or no lane is open."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from bernstein_client.connection import Services
from bernstein_formats.http_secrets import Redactor
from bernstein_proxy.app import Agents
from bernstein_proxy.control import LINE_BYTES_MAX, Control
from bernstein_proxy.lanes import Lanes
from bernstein_proxy.redaction_key import redaction_key
from bernstein_runtime.disk import check_folder
from bernstein_runtime.process import Started, service_process
from bernstein_runtime.stopping import stop_event

CONNECT_SECONDS = 30.0
GRACE_SECONDS = 2.0
TICK_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
HOST = "127.0.0.1"
# Names that aiohttp would add to a request if its agent had not sent them.
NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_Made = TypeVar("_Made")


def run(started: Started) -> None:
    """Until stopped or idle. Raises BernsteinError."""
    # What is kept is prepared by threads beside the one that passes on what comes.
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(_serve(started))


async def _serve(started: Started) -> None:
    with Services(started.places.sdd_dir, started.environ) as services:
        lanes = Lanes(services, Redactor(redaction_key(started.places)))
        async with _session() as session:
            runner = web.AppRunner(
                Agents(lanes, session).app(), access_log=None, handler_cancellation=True
            )
            await runner.setup()
            port = _listen()
            await web.SockSite(runner, port, shutdown_timeout=GRACE_SECONDS).start()
            # For agents that have no network.
            lanes_path = started.places.socket("lanes")
            lanes_path.unlink(missing_ok=True)
            await _private(web.UnixSite(runner, lanes_path).start)
            base_url = f"http://{HOST}:{port.getsockname()[1]}"
            control = Control(lanes, base_url)
            server = await _control_server(control, started.places.socket("proxy"))
            structlog.get_logger().info("serving", url=base_url, pid=os.getpid())
            await _until_stopped(started, lanes)
            structlog.get_logger().info("stopping")
            server.close()
            await runner.cleanup()


def _session() -> ClientSession:
    return ClientSession(
        connector=TCPConnector(limit=0),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        cookie_jar=DummyCookieJar(),
        # Bytes are passed on as they are.
        auto_decompress=False,
        skip_auto_headers=NOT_ADDED,
    )


def _listen() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.bind((HOST, 0))
    return opened


async def _control_server(control: Control, path: Path) -> asyncio.Server:
    await asyncio.to_thread(path.unlink, missing_ok=True)
    start = partial(asyncio.start_unix_server, control.serve, path, limit=LINE_BYTES_MAX)
    return await _private(start)


async def _private(start: Callable[[], Awaitable[_Made]]) -> _Made:
    """Make a socket that nobody else can reach."""
    before = os.umask(0o177)
    try:
        return await start()
    finally:
        os.umask(before)


async def _until_stopped(started: Started, lanes: Lanes) -> None:
    stopping = stop_event(started.parent)
    started.readiness.watch(lambda: check_folder(started.places.sdd_dir))
    used_at = time.monotonic()
    while not stopping.is_set() and time.monotonic() - used_at < started.idle_seconds:
        await lanes.end_idle()
        if not lanes.is_empty:
            used_at = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), TICK_SECONDS)


def main() -> None:
    """The command `bernstein-proxy`."""
    service_process("proxy", run)


if __name__ == "__main__":
    main()
