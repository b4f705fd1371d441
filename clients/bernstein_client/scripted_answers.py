"""A provider on loopback that says what it is given to say, for what was recorded elsewhere."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from bernstein_client.provider_environment import all_providers
from bernstein_client.recorder import Provider
from bernstein_client.vcr_cassette import Interaction

# Written anew for each connection.
_LEFT_OUT: Final = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})


class ScriptedAnswers:
    """Use `with`; answers one request at a time, with `next_answer`."""

    def __init__(self) -> None:
        self.next_answer: Interaction
        handler = type("Handler", (_Handler,), {"script": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True

    def providers(self) -> tuple[Provider, ...]:
        """Every provider is here."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return tuple(Provider(each.name, url, "") for each in all_providers({}))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: ScriptedAnswers

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        said = self.script.next_answer
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response_only(said.status)
        for name, value in said.headers:
            if name.lower() not in _LEFT_OUT:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(said.body)))
        self.end_headers()
        self.wfile.write(said.body)

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _answer  # noqa: N815 - http.server's names
