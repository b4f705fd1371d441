"""The life of a service process up to serving: greeting, places, lock; a refusal is one log line.

The supervisor greets with one line on standard input: the token that the journal shows the signer.
The pipe stays open as long as the supervisor lives, and a service ends with it. A service started
by something else (standard input empty) has no token and stands by itself.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from bernstein_formats.errors import BernsteinError
from bernstein_runtime.config import SupervisorConfig, load_table
from bernstein_runtime.lock import LockFile
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.places import Places, make_state, places_for
from bernstein_runtime.server import Listener

# A service whose supervisor was killed finishes its calls before it gives the lock up.
LOCK_WAIT_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Started:
    """What a service process knows when it begins."""

    name: str
    places: Places
    environ: Mapping[str, str]
    token: bytes
    parent: int | None
    idle_seconds: float

    def listener(self, token: bytes = b"") -> Listener:
        """The service's own socket; `token` is what its callers must present."""
        return Listener(self.places.socket(self.name), self.idle_seconds, token, self.parent)


def service_process(name: str, run: Callable[[Started], None]) -> None:
    """`bernstein-<name> SDD_DIR`: hold the service's lock and `run` it; exit 1 when it refuses."""
    configure_logs(name)
    if len(sys.argv) != 2:
        sys.exit(f"usage: bernstein-{name} SDD_DIR")
    try:
        started = _started(name, Path(sys.argv[1]), os.environ)
        wait = 0.0 if started.parent is None else LOCK_WAIT_SECONDS
        with LockFile(started.places.state_dir / f"{name}.lock", wait):
            run(started)
    except BernsteinError as error:
        structlog.get_logger().error("refused", reason=error.reason, error=error.message)
        sys.exit(1)


def _started(name: str, sdd_dir: Path, environ: Mapping[str, str]) -> Started:
    greeting = sys.stdin.buffer.readline()
    places = places_for(sdd_dir, environ)
    make_state(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, environ)
    return Started(
        name=name,
        places=places,
        environ=environ,
        token=greeting.strip(),
        parent=sys.stdin.fileno() if greeting else None,
        idle_seconds=config.idle_seconds,
    )
