"""`python -m bernstein_supervisor SDD_DIR`: start services when asked, end when nobody needs them.

One JSON line in, one out: {"do": "start", "service": …}, {"do": "status"}, {"do": "stop"}.
No gRPC here: a small process that is always there must stay small.
"""

import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bernstein_formats.errors import BernsteinError, Conflict
from bernstein_runtime import VERSION
from bernstein_runtime.config import SupervisorConfig, load_table
from bernstein_runtime.lock import LockFile
from bernstein_runtime.places import Places, make_state, places_for
from bernstein_supervisor.children import Children

TICK_SECONDS = 0.25
# How long a service may take until its socket answers.
READY_SECONDS = 14.0
LOG_TAIL_BYTES = 8192


class Supervisor:
    """Answers requests and watches over the children, in one thread."""

    def __init__(
        self, places: Places, config: SupervisorConfig, environ: Mapping[str, str]
    ) -> None:
        self._places = places
        self._config = config
        self._children = Children(places, environ, config.restarts_max, secrets.token_hex(32))
        self._stopping = False
        self._last_request = time.monotonic()

    def run(self, listener: socket.socket) -> None:
        """Until told to stop, or nothing runs and nobody asked for long enough."""
        listener.settimeout(TICK_SECONDS)
        while not self._stopping:
            try:
                channel, _ = listener.accept()
            except TimeoutError:
                channel = None
            if channel is not None:
                with channel:
                    self._serve(channel)
            for service in self._children.reap():
                say("restarted", service=service)
            idle = time.monotonic() - self._last_request
            if not self._children.running and idle > self._config.idle_seconds:
                self._stopping = True
        say("stopping")
        self._children.stop()

    def stop(self, *_: object) -> None:
        """Signal handler."""
        self._stopping = True

    def _serve(self, channel: socket.socket) -> None:
        channel.settimeout(1.0)
        try:
            request = json.loads(channel.makefile("rb").readline() or b"{}")
            answer = self._answer(request)
            channel.sendall(json.dumps(answer).encode() + b"\n")  # noqa: TID251 - not evidence
        except (OSError, ValueError) as error:
            say("request_failed", error=str(error))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._last_request = time.monotonic()
        try:
            match request.get("do"):
                case "start":
                    return self._start(str(request.get("service")), str(request.get("version")))
                case "status":
                    return {
                        "ok": True,
                        "version": VERSION,
                        "pid": os.getpid(),
                        "services": self._status(),
                    }
                case "stop":
                    self._children.stop()
                    self._stopping = True
                    return {"ok": True}
        except BernsteinError as error:
            return {"ok": False, "error": error.message}
        return {"ok": False, "error": "unknown request"}

    def _start(self, service: str, version: str) -> dict[str, Any]:
        if version != VERSION:
            # The command was upgraded: give way, so that it starts a supervisor of its own version.
            say("version_differs", ours=VERSION, theirs=version)
            self._stopping = True
            return {"ok": False, "retry": True}
        self._children.start(service)
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            if accepts(self._places.socket(service)):
                return {"ok": True}
            code = self._children.exit_code(service)
            if code is not None and code > 0:  # it refused: its log says why
                break
            if code is not None:  # it was just ending when it was asked for, or was killed
                self._children.start(service)
            time.sleep(0.005)
        return {
            "ok": False,
            "error": f"{service} does not start: {last_error(self._places.log(service))}",
        }

    def _status(self) -> list[dict[str, Any]]:
        return [
            {
                "service": name,
                "pid": child.process.pid,
                "uptime_seconds": round(time.monotonic() - child.started, 1),
                "restarts": self._children.restarts.get(name, 0),
            }
            for name, child in sorted(self._children.running.items())
        ]


def accepts(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def last_error(log: Path) -> str:
    """What a service that refused to start said last, else where to look."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "error" in said:
            return str(said["error"])
    return f"see {log}"


def say(event: str, **facts: object) -> None:
    """One JSON line; structlog would double the size of this process."""
    now = datetime.fromtimestamp(time.time(), UTC).isoformat()  # noqa: TID251
    line = {
        "event": event,
        "service": "supervisor",
        "timestamp": now.replace("+00:00", "Z"),
    } | facts
    print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: TID251, T201


def main() -> None:
    """Wire and run."""
    places = places_for(Path(sys.argv[1]), os.environ)
    make_state(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, os.environ)
    lock = LockFile(places.state_dir / "supervisor.lock")
    try:
        lock.acquire()
    except Conflict:
        sys.exit(0)  # another command was faster; its supervisor serves us too
    path = places.socket("supervisor")
    path.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(16)
        if os.fork():
            # Whoever started us may connect now; the process that goes on is nobody's child.
            os._exit(0)
        os.setsid()
        supervisor = Supervisor(places, config, os.environ)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.stop)
        say("serving", pid=os.getpid(), sdd_dir=str(places.sdd_dir))
        supervisor.run(listener)
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        main()
    except BernsteinError as error:
        say("refused", reason=error.reason, error=error.message)
        sys.exit(1)
