"""How a client reaches the services of a project folder: ask its supervisor, start one if none is.

The supervisor listens on a Unix socket for one JSON line and answers with one. A client that finds
nobody starts `python -m bernstein_supervisor` in the background, with a scrubbed environment; two
that do so at once are settled by the supervisor's lock.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bernstein_formats.errors import InvalidInput, Unavailable
from bernstein_runtime import VERSION, limits
from bernstein_runtime.places import Places, make_state

# What services may see of a user's environment; provider keys and the peer's variables not.
ENVIRONMENT = ("HOME", "LANG", "PATH", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
ENVIRONMENT_PREFIXES = ("LC_", "BERNSTEIN_SVC_", "SSL_CERT_")
# The peer's name for the file of the audit key, and what the signer reads instead.
PEER_AUDIT_KEY = "BERNSTEIN_AUDIT_KEY_PATH"
AUDIT_KEY_FILE = "BERNSTEIN_SVC_SIGNER_AUDIT_KEY_FILE"


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


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The supervisor of one project, running or not."""

    places: Places
    environ: Mapping[str, str]

    def ask(self, request: Mapping[str, str]) -> dict[str, Any] | None:
        """One request, one answer; None when nobody listens."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                channel.settimeout(limits.START_TIMEOUT_SECONDS)
                channel.connect(str(self.places.socket("supervisor")))
                channel.sendall(json.dumps(dict(request)).encode() + b"\n")  # noqa: TID251 - not evidence
                answer = channel.makefile("rb").readline()
        except (FileNotFoundError, ConnectionError):
            return None
        except OSError as error:
            raise Unavailable(f"the supervisor does not answer: {error}") from error
        if not answer:
            return None
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def ensure(self, service: str) -> None:
        """Have `service` running and accepting calls, or raise Unavailable."""
        give_up = time.monotonic() + limits.START_TIMEOUT_SECONDS
        while time.monotonic() < give_up:
            answer = self.ask({"do": "start", "service": service, "version": VERSION})
            if answer is None:
                self._start()
            elif answer.get("ok"):
                return
            elif answer.get("retry"):
                time.sleep(0.05)
            else:
                raise Unavailable(str(answer.get("error", "the supervisor refused")))
        raise Unavailable(
            f"{service} did not start within {limits.START_TIMEOUT_SECONDS:.0f} s; "
            f"see {self.places.log('supervisor')}",
            service=service,
        )

    def _start(self) -> None:
        if not self.places.sdd_dir.is_dir():
            raise InvalidInput(
                f"{self.places.sdd_dir} is not a folder; name the state folder with --sdd-dir",
                path=self.places.sdd_dir,
            )
        make_state(self.places)
        log = self.places.log("supervisor")
        with log.open("ab") as output:
            # It returns once its child listens; the child goes on by itself.
            ended = subprocess.run(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", "bernstein_supervisor", str(self.places.sdd_dir)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=scrubbed(self.environ),
                cwd="/",
                timeout=limits.START_TIMEOUT_SECONDS,
                check=False,
            )
        if ended.returncode:
            raise Unavailable(f"the supervisor does not start; the reason is in {log}")


def supervisor_for(places: Places, environ: Mapping[str, str] | None = None) -> Supervisor:
    """The supervisor of `places`, seen from this process's environment."""
    return Supervisor(places, os.environ if environ is None else environ)
