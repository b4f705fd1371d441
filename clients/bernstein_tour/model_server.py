"""A scripted model on loopback with an OpenAI-compatible API, for the tour and for tests.

No answer is ever given twice, so that only a replay can repeat a run. `python -m
bernstein_tour.model_server --port 0` prints its base URL and serves until interrupted.
"""

import argparse
import contextlib
import hashlib
import json
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

MODEL = "scripted-small"
REQUEST_BYTES_MAX = 4 * 1024 * 1024
READ_SECONDS = 30.0
OPENINGS = (
    "This release is about trust",
    "Faster, calmer, easier to check",
    "Small changes that you will notice every day",
    "What went in, and what we took out",
    "A release for people who keep records",
)
CHANGES = (
    "runs are recorded while they happen",
    "a replay needs neither model nor network",
    "every step names the one before it",
    "a cut line is found and named",
    "receipts can be checked on a plane",
    "start-up takes less than a second",
    "one command says which step was edited",
    "agents that die are tried again",
)
CLOSINGS = (
    "Upgrade when it suits you; nothing on disk changes its form.",
    "Thanks to everybody who sent a recording that would not replay.",
    "The next release will be smaller.",
    "If something does not verify, we want to know.",
)


class ModelServer:
    """The server in a thread of this process: `with ModelServer() as server: server.base_url`."""

    def __init__(self, port: int = 0) -> None:
        """Bind to a loopback port, 0 for any free one; serving begins with `start`."""
        self._lock = threading.Lock()
        self._calls = 0
        self._server = _Server(self, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def calls(self) -> int:
        """How many completions were asked for."""
        with self._lock:
            return self._calls

    def start(self) -> None:
        """Serve in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving; the port is closed afterwards."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, prompt: str) -> str:
        """The next answer, counted."""
        with self._lock:
            self._calls += 1
            return scripted_text(prompt, self._calls, time.time_ns())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: ModelServer, port: int) -> None:
        self.model = model
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(
                HTTPStatus.OK, {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            )
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not_found")

    def do_POST(self) -> None:
        asked = self._request()
        if self.path != "/v1/chat/completions":
            self._refuse(HTTPStatus.NOT_FOUND, "not_found")
        elif asked is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "invalid_request_error")
        else:
            model, prompt = asked
            self._send(HTTPStatus.OK, _completion(model, self.server.model.answer(prompt)))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing: the tour's own lines are to be read."""

    def _request(self) -> tuple[str, str] | None:
        """Model and last message of a chat request; None for anything else."""
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length[:9]) > REQUEST_BYTES_MAX:
            self.close_connection = True
            return None
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return None
        match body:
            case {"model": str() as model, "messages": [*_, {"content": str() as prompt}]}:
                return model, prompt
        return None

    def _refuse(self, status: HTTPStatus, kind: str) -> None:
        self._send(status, {"error": {"type": kind, "message": status.phrase}})

    def _send(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()  # noqa: TID251 - not evidence
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client may leave before its answer
            self.wfile.write(body)


def _completion(model: str, text: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{hashlib.sha256(text.encode()).hexdigest()[:12]}",
        "object": "chat.completion",
        "created": time.time_ns() // 1_000_000_000,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
    }


def scripted_text(prompt: str, call: int, nanoseconds: int) -> str:
    """A plausible text that depends on all three, the last line alone making it unique."""
    dice = hashlib.sha256(f"{call} {nanoseconds} {prompt}".encode("utf-8", "replace")).digest()
    first, second = dice[1] % len(CHANGES), dice[2] % (len(CHANGES) - 1)
    second += second >= first
    opening, closing = OPENINGS[dice[0] % len(OPENINGS)], CLOSINGS[dice[3] % len(CLOSINGS)]
    signature = f"(draft {call}-{dice[4:8].hex()})"
    if "summar" in prompt.lower():
        return f"{opening}: {CHANGES[first]}, and {CHANGES[second]}. {closing} {signature}"
    changes = f"- {CHANGES[first]}\n- {CHANGES[second]}"
    return f"{opening}.\n\n{changes}\n\n{closing}\n{signature}"


def main() -> None:
    """Print the base URL, serve until interrupted."""
    parser = argparse.ArgumentParser(prog="bernstein_tour.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0: any free one")
    server = ModelServer(parser.parse_args().port)
    print(server.base_url, flush=True)  # noqa: T201 - what the caller needs to know
    with server:
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
