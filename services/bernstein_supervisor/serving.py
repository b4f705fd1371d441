"""One thread that answers requests and watches over the services until nobody needs them.

One JSON line in, one out: {"do": "start", "service": …}, {"do": "status"}, {"do": "stop"}.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any

from bernstein_formats.errors import BernsteinError, Conflict, InvalidInput, Unavailable
from bernstein_runtime import VERSION
from bernstein_runtime.config import SupervisorConfig
from bernstein_runtime.disk import in_words
from bernstein_runtime.lock import LockFile
from bernstein_runtime.origin import fleet_text
from bernstein_runtime.places import Places
from bernstein_runtime.refusal import refusal_of
from bernstein_runtime.supervisor_socket import require_own_peer
from bernstein_supervisor.children import Children
from bernstein_supervisor.log import say
from bernstein_supervisor.probe import answers

TICK_SECONDS = 0.25
# How long a service may take until it answers; one that ran already, shorter.
READY_SECONDS = 14.0
HUNG_SECONDS = 5.0


class Supervisor:
    """Answers requests and watches over the children, in one thread."""

    def __init__(
        self, places: Places, config: SupervisorConfig, environ: Mapping[str, str], lock: LockFile
    ) -> None:
        self._places = places
        self._config = config
        self._lock = lock
        self._fleet = fleet_text(places.state_dir, environ)
        self._children = Children(places, environ, config.restarts_max, secrets.token_hex(32))
        self._stopping = False
        self._last_request = time.monotonic()
        self._socket = places.socket("supervisor").stat()

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
            if self._displaced():
                break
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

    def _displaced(self) -> bool:
        """Whether nobody can find us any more: the state folder or the socket is not ours now."""
        if self._lock.is_current() and self._is_reachable():
            return False
        if not self._stopping:
            say("displaced", error="the state folder or the socket was removed or replaced")
        self._stopping = True
        return True

    def _is_reachable(self) -> bool:
        try:
            return os.path.samestat(self._socket, self._places.socket("supervisor").stat())
        except OSError:
            return False

    def _serve(self, channel: socket.socket) -> None:
        channel.settimeout(1.0)
        try:
            require_own_peer(channel, self._places.socket("supervisor"))
            request = json.loads(channel.makefile("rb").readline() or b"{}")
            answer = self._answer(request if isinstance(request, dict) else {})
            channel.sendall(json.dumps(answer).encode() + b"\n")  # noqa: TID251 - not evidence
        except (OSError, ValueError, RecursionError) as error:
            say("request_failed", error=in_words(error))
        except BernsteinError as error:
            say("request_refused", error=error.message)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._last_request = time.monotonic()
        try:
            match request.get("do"):
                case "start":
                    self._check_fleet(str(request.get("fleet", "")))
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
            return {"ok": False, **refusal_of(error)}
        return {"ok": False, **refusal_of(InvalidInput("unknown request; see the commands' help"))}

    def _check_fleet(self, wanted: str) -> None:
        """What was started for other services would send them what is not theirs."""
        if wanted != self._fleet:
            ours = self._fleet or "those of this host"
            raise Conflict(
                f"proxy and gateway here were started for other services ({ours}) than are asked"
                f" now ({wanted or 'those of this host'}); end them with `bernstein services stop`"
            )

    def _start(self, service: str, version: str) -> dict[str, Any]:
        if self._displaced():
            return {"ok": False, "retry": True}
        if not _is_older(version) and version != VERSION:
            # The command was upgraded: give way, so that it starts a supervisor of its own version.
            # One that is older is served: else two that work side by side would end each other's.
            say("version_differs", ours=VERSION, theirs=version)
            self._stopping = True
            return {"ok": False, "retry": True}
        is_new = self._children.start(service)
        give_up = time.monotonic() + (READY_SECONDS if is_new else HUNG_SECONDS)
        while time.monotonic() < give_up:
            if answers(self._places, service):
                return {"ok": True}
            code = self._children.exit_code(service)
            if code is not None and code > 0:
                raise self._refusal(service, code)
            if code is not None:  # it was just ending when it was asked for, or was killed
                self._children.start(service)
            time.sleep(0.005)
        pid = self._children.running[service].process.pid
        raise Unavailable(
            f"{service} runs but does not answer (process {pid}): wake it with `kill -CONT {pid}`, "
            "or `bernstein services stop` and try again",
            service=service,
        )

    def _refusal(self, service: str, code: int) -> BernsteinError:
        """What a service that refused to start said, as the error that it is."""
        said = self._children.running[service].refusal()
        if said is None:
            return BernsteinError(
                f"{service} ended at its start with exit code {code}; the reason is in "
                f"{self._places.log(service)}",
                service=service,
            )
        error = type(said)(f"{service} does not start: {said.message}")
        error.metadata.update(said.metadata)
        return error

    def _status(self) -> list[dict[str, Any]]:
        return [
            {
                "service": name,
                "pid": child.process.pid,
                "uptime_seconds": round(time.monotonic() - child.started, 1),
                "restarts": self._children.restarts.get(name, 0),
                "answers": answers(self._places, name),
            }
            for name, child in sorted(self._children.running.items())
        ]


def _is_older(version: str) -> bool:
    """Whether it is a release before ours."""
    theirs, ours = version.split("."), VERSION.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (*theirs, *ours)):
        return False
    return [int(part) for part in theirs] < [int(part) for part in ours]
