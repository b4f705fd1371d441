"""Plain HTTP beside a service, where `[metrics] endpoint` says: for Prometheus, and for probes that
have no certificate.

    /metrics   what the service counts
    /livez     200: the process answers
    /readyz    200: it can do its work; else 503 and one reason word

Nothing here tells of a run, a path or a key. Loopback unless another address is configured.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from bernstein_formats.errors import InvalidInput
from bernstein_runtime import metrics
from bernstein_runtime.disk import free_bytes, in_words
from bernstein_runtime.endpoint import Endpoint
from bernstein_runtime.places import Places
from bernstein_runtime.readiness import Readiness
from bernstein_runtime.tls import expires_at, tls_files

SECONDS: Final = 5.0
TEXT: Final = "text/plain; charset=utf-8"


class _Pages(BaseHTTPRequestHandler):
    """One request."""

    server: "_Server"
    timeout = SECONDS
    server_version = "bernstein"
    sys_version = ""

    def do_GET(self) -> None:
        status, kind, body = self._page()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def _page(self) -> tuple[int, str, bytes]:
        if self.path == "/metrics":
            self.server.refresh()
            return 200, CONTENT_TYPE_LATEST, generate_latest()
        if self.path == "/livez":
            return 200, TEXT, b"alive\n"
        if self.path == "/readyz":
            refusal = self.server.readiness.refusal
            return (503, TEXT, f"{refusal}\n".encode()) if refusal else (200, TEXT, b"ready\n")
        return 404, TEXT, b"there are /metrics, /livez and /readyz\n"

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds, and are no news."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], readiness: Readiness, refresh: Callable[[], None]
    ) -> None:
        self.readiness = readiness
        self.refresh = refresh
        super().__init__(address, _Pages)


@contextmanager
def pages(
    endpoint: Endpoint,
    service: str,
    readiness: Readiness,
    places: Places,
    environ: Mapping[str, str],
) -> Iterator[None]:
    """While it lasts the pages are there. Raises InvalidInput where nothing can listen."""
    address = (endpoint.host, endpoint.port(service))

    def refresh() -> None:
        metrics.DISK_FREE_BYTES.set(free_bytes(places.state_dir))
        files = tls_files(places.state_dir, environ)
        metrics.CERTIFICATE_EXPIRES.set(expires_at(files) if files else 0)

    try:
        server = _Server(address, readiness, refresh)
    except OSError as error:
        raise InvalidInput(
            f"[metrics] endpoint: nothing can listen at {endpoint.address(service)}:"
            f" {in_words(error)}; choose another port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
