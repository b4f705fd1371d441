"""The services behind cassettes: one throwaway project a process, there from its first cassette on.

Nothing of the user's is touched: its state and its keys lie in a temporary folder of their own.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

from bernstein_client.agent_settings import past_proxies
from bernstein_client.connection import Services
from bernstein_runtime.config import NO_FLEET

# The same everywhere: a cassette is replayed by whoever has it.
_REDACTION_KEY: Final = hashlib.sha256(b"bernstein cassettes").hexdigest()
_LOCK: Final = threading.Lock()
# By process: a child that was forked has none of its own yet.
_OPEN: Final[dict[int, Services]] = {}


def cassette_services() -> Services:
    """This process's; they end with it."""
    with _LOCK:
        if os.getpid() not in _OPEN:
            _OPEN[os.getpid()] = _started(Path(tempfile.mkdtemp(prefix="bernstein-cassettes-")))
        return _OPEN[os.getpid()]


def _started(folder: Path) -> Services:
    sdd_dir, state = folder / "project" / ".sdd", folder / "state"
    for each in (sdd_dir, state):
        each.mkdir(parents=True, mode=0o700)
    # What is dialled may be on this machine.
    environ = {**os.environ, **past_proxies(os.environ), "XDG_STATE_HOME": str(state), **NO_FLEET}
    services = Services(sdd_dir, environ)
    key = services.places.redaction_key
    key.parent.mkdir(mode=0o700)
    key.write_text(_REDACTION_KEY)
    atexit.register(end_cassette_services)
    return services


def end_cassette_services() -> None:
    """End this process's now, for a program that does not end as Python programs do."""
    with _LOCK:
        services = _OPEN.pop(os.getpid(), None)
    if services is not None:
        with services:
            services.supervisor.ask({"do": "stop"})
        shutil.rmtree(services.places.sdd_dir.parents[1], ignore_errors=True)
