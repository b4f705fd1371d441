"""`python -m bernstein_supervisor SDD_DIR`: start services when asked, end when nobody needs them.

Until it listens it belongs to whoever started it, and a refusal is one JSON line on standard error;
then it goes on by itself. No gRPC here: a small process that is always there must stay small.
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from bernstein_formats.errors import BernsteinError, Conflict, Unavailable
from bernstein_runtime.config import SupervisorConfig, load_table
from bernstein_runtime.disk import failed
from bernstein_runtime.lock import LockFile
from bernstein_runtime.places import Places, make_logs, make_runtime, places_for
from bernstein_runtime.refusal import refusal_of
from bernstein_runtime.supervisor_record import record_path, write_record
from bernstein_runtime.supervisor_socket import ask_at
from bernstein_supervisor.children import SERVICES
from bernstein_supervisor.log import open_log, say
from bernstein_supervisor.serving import Supervisor

# Whoever looks whether the lock is held has it for an instant.
LOCK_WAIT_SECONDS = 0.2
# Services of a removed state folder finish their calls.
FORMER_SECONDS = 10.0


def main() -> None:
    """Wire and run."""
    places = places_for(Path(sys.argv[1]), os.environ)
    make_logs(places)
    config = load_table(SupervisorConfig, "supervisor", places.state_dir, os.environ)
    log = open_log(places.log("supervisor"))
    lock = LockFile(places.supervisor_lock, LOCK_WAIT_SECONDS)
    try:
        lock.acquire()
    except Conflict:
        sys.exit(0)  # another command was faster; its supervisor serves us too
    with listen(places) as listener:
        if os.fork():
            # Whoever started us may connect now; the process that goes on is nobody's child.
            os._exit(0)
        os.setsid()
        os.dup2(log, sys.stderr.fileno())
        supervisor = Supervisor(places, config, os.environ, lock)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.stop)
        record(places)
        say("serving", pid=os.getpid(), sdd_dir=str(places.sdd_dir))
        supervisor.run(listener)
        leave(places, lock)


def listen(places: Places) -> socket.socket:
    """The supervisor's socket, listening. Raises BernsteinError."""
    path = places.socket("supervisor")
    end_former(places)
    make_runtime(places)  # not before: one that was just ending takes it along
    os.umask(0o077)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise failed(path, error) from error
    return listener


def end_former(places: Places) -> None:
    """Who still serves the socket, without the lock, had a state folder that was removed."""
    give_up = time.monotonic() + FORMER_SECONDS
    while ask_at(places, {"do": "stop"}, FORMER_SECONDS) is not None:
        if time.monotonic() > give_up:
            raise Unavailable(
                f"the services of a removed {places.sdd_dir} do not end; end them with "
                "`bernstein services stop`, and try again"
            )
        time.sleep(0.02)


def record(places: Places) -> None:
    """For commands that have another runtime folder; without space only those are lost."""
    try:
        write_record(places.state_dir, places.runtime_root)
    except BernsteinError as error:
        say("not_recorded", reason=error.reason, error=error.message)


def leave(places: Places, lock: LockFile) -> None:
    """Take along what would mislead others, while nobody else can have begun."""
    is_ours = lock.is_current() or not places.supervisor_lock.exists()
    with suppress(OSError):
        if is_ours:
            record_path(places.state_dir).unlink(missing_ok=True)
        for name in (*SERVICES, "supervisor"):
            places.socket(name).unlink(missing_ok=True)
        if is_ours:
            places.runtime_dir.rmdir()


if __name__ == "__main__":
    try:
        main()
    except BernsteinError as error:
        sys.exit(json.dumps(refusal_of(error)))  # noqa: TID251 - not evidence
