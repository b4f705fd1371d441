"""How a client reaches the services of a project folder: ask its supervisor, start one if none is.

The supervisor listens on a Unix socket for one JSON line and answers with one. A client that finds
nobody there asks the one that `svc/supervisor.json` names, else starts `python -m
bernstein_supervisor` in the background, with a scrubbed environment; two that do so at once are
settled by the supervisor's lock.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bernstein_formats.errors import InvalidInput, NotAllowed, Unavailable
from bernstein_runtime import VERSION, limits
from bernstein_runtime.lock import is_held
from bernstein_runtime.origin import fleet_text
from bernstein_runtime.places import Places
from bernstein_runtime.refusal import error_from_refusal, refusal_in
from bernstein_runtime.supervisor_record import SupervisorRecord, read_record, record_owner
from bernstein_runtime.supervisor_socket import ask_at

# What services may see of a user's environment; provider keys and the peer's variables not.
ENVIRONMENT = ("HOME", "LANG", "PATH", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
ENVIRONMENT_PREFIXES = ("LC_", "BERNSTEIN_SVC_", "SSL_CERT_")
# The peer's name for the file of the audit key, and what the signer reads instead.
PEER_AUDIT_KEY = "BERNSTEIN_AUDIT_KEY_PATH"
AUDIT_KEY_FILE = "BERNSTEIN_SVC_SIGNER_AUDIT_KEY_FILE"
RETRY_SECONDS = 0.05
# A supervisor that ends, or was killed, keeps its lock for a moment longer than its socket.
REACH_SECONDS = 1.0


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that services start with."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in ENVIRONMENT or name.upper() in PROXIES or name.startswith(ENVIRONMENT_PREFIXES)
    }
    if environ.get(PEER_AUDIT_KEY) and AUDIT_KEY_FILE not in kept:
        kept[AUDIT_KEY_FILE] = os.path.abspath(environ[PEER_AUDIT_KEY])  # noqa: PTH100 - links stay
    return kept | {"GRPC_VERBOSITY": "ERROR"}


@dataclass(slots=True)
class Supervisor:
    """The supervisor of one project, running or not."""

    places: Places
    environ: Mapping[str, str]

    def ask(self, request: Mapping[str, str]) -> dict[str, Any] | None:
        """One request, one answer; None when there is no supervisor.

        Raises Unavailable or NotAllowed for one that lives out of reach.
        """
        answer = ask_at(self.places, request)
        return self._ask_recorded(request) if answer is None else answer

    def _ask_recorded(self, request: Mapping[str, str]) -> dict[str, Any] | None:
        """Ask the one that wrote itself down: it may have been started in other surroundings."""
        give_up = time.monotonic() + REACH_SECONDS
        while (record := self._live_record()) is not None:
            places = replace(self.places, runtime_root=record.runtime_root)
            answer = ask_at(places, request)
            if answer is not None:
                self.places = places
                return answer
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"the services of {places.sdd_dir} run already (supervisor: process"
                    f" {record.pid}), but {places.runtime_dir} cannot be reached from here; stop"
                    " them where they were started, with `bernstein services stop`",
                    path=places.runtime_dir,
                )
            time.sleep(RETRY_SECONDS)
        return None

    def _live_record(self) -> SupervisorRecord | None:
        if not is_held(self.places.supervisor_lock):
            return None
        owner = record_owner(self.places.state_dir)
        if owner not in (None, os.getuid()):
            raise NotAllowed(
                f"the services of {self.places.sdd_dir} are run by user {owner}; "
                "work as that user, or let that user stop them with `bernstein services stop`",
                path=self.places.sdd_dir,
            )
        return read_record(self.places.state_dir)

    def ensure(self, service: str) -> None:
        """Have `service` running and answering.

        Raises Unavailable when that may come later, and what the service refused with otherwise.
        """
        give_up = time.monotonic() + limits.START_TIMEOUT_SECONDS
        fleet = fleet_text(self.places.state_dir, self.environ)
        request = {"do": "start", "service": service, "version": VERSION, "fleet": fleet}
        while time.monotonic() < give_up:
            answer = self.ask(request)
            if answer is None:
                self._start()
            elif answer.get("ok"):
                return
            elif answer.get("retry"):
                time.sleep(RETRY_SECONDS)
            else:
                raise error_from_refusal(answer)
        raise Unavailable(self._advice(service), service=service)

    def _advice(self, service: str) -> str:
        late = f"{service} did not start within {limits.START_TIMEOUT_SECONDS:.0f} s"
        lock = self.places.supervisor_lock
        if is_held(lock):
            return f"{late}; end the process that holds {lock} (`fuser {lock}`), and try again"
        return f"{late}; see {self.places.log('supervisor')}, and try again"

    def _start(self) -> None:
        """Returns once a supervisor listens, ours or one that was faster."""
        if not self.places.sdd_dir.is_dir():
            raise InvalidInput(
                f"{self.places.sdd_dir} is not a folder; make it, or name the state folder",
                path=self.places.sdd_dir,
            )
        # So that it has its sockets where this client will look for them.
        own = {"XDG_RUNTIME_DIR": str(self.places.runtime_root)}
        try:
            ended = subprocess.run(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", "bernstein_supervisor", str(self.places.sdd_dir)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # It lets go of the pipe once it listens; until then it says here why it cannot.
                stderr=subprocess.PIPE,
                env=scrubbed(self.environ) | own,
                cwd="/",
                timeout=limits.START_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(self._advice("the supervisor")) from error
        if ended.returncode:
            raise refusal_in(ended.stderr) or Unavailable(
                f"the supervisor does not start: {_last_line(ended.stderr)}"
            )


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "backslashreplace").splitlines()
    return lines[-1] if lines else "it says nothing; see `bernstein services doctor`"


def supervisor_for(places: Places, environ: Mapping[str, str] | None = None) -> Supervisor:
    """The supervisor of `places`, seen from this process's environment."""
    return Supervisor(places, os.environ if environ is None else environ)
