"""`python appending.py SOCKET RUN NAME`: appends until standard input ends, with the client library
of whatever release runs this. Prints `ready`, or what failed, and in the end what was answered."""

import json
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from bernstein_client.journal import JournalClient
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.errors import RunExists
from bernstein_runtime.channel import open_channel

THREADS = 4


class Direct:
    """Leads to a service that somebody else starts, as both releases want to be led."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.places = self

    def socket(self, name: str) -> Path:
        return self._socket

    def open(self, name: str):
        return open_channel(self._socket)

    def ensure(self, name: str) -> None:
        """It is on its way."""


def main(socket: str, run_id: str, name: str) -> None:
    direct: Any = Direct(Path(socket))
    journal = JournalClient(ServiceChannel("journal", direct))
    with suppress(RunExists):
        journal.create_run(run_id)
    stop = threading.Event()
    answered = [0] * THREADS

    def append(thread: int) -> None:
        while not stop.is_set():
            journal.append(run_id, "x", {"p": f"{name}-{thread}", "n": answered[thread]})
            answered[thread] += 1
            if answered[thread] == 1:
                print("ready", flush=True)

    failed: list[str] = []

    def told(what: threading.ExceptHookArgs) -> None:
        failed.append(repr(what.exc_value))
        print(failed[-1], flush=True)

    threading.excepthook = told
    threads = [threading.Thread(target=append, args=(each,)) for each in range(THREADS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    rows = {f"{name}-{thread}": count for thread, count in enumerate(answered)}
    print(json.dumps({"rows": rows, "failed": failed}))


main(*sys.argv[1:])
