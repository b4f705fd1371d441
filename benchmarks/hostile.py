"""A caller that takes what it can get from a fleet's journal: `writer` or `slow-reader`.

Prints a line once it is at it, and goes on until it is killed.
"""

import itertools
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import grpc

from bernstein_api.journal.v1 import journal_pb2, journal_pb2_grpc
from bernstein_client.connection import Services

THREADS = 64
EVENTS = 900
PAYLOAD = b'{"text": "' + b"x" * 1000 + b'"}'
STREAMS = 400


def write(services: Services) -> None:
    """As many large appends side by side as threads can send, to a few runs."""
    send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = services.connector.open(
        "journal"
    ).unary_unary("/bernstein_api.journal.v1.JournalService/AppendEvents")
    runs = [services.journal.create_run() for _ in range(4)]
    numbers = itertools.count()
    event = journal_pb2.NewEvent(event="x", payload_json=PAYLOAD)
    events = journal_pb2.AppendEventsRequest(events=[event] * EVENTS).SerializeToString()

    def flood() -> None:
        while True:
            number = next(numbers)
            named = journal_pb2.AppendEventsRequest(
                run_id=runs[number % len(runs)], request_id=f"hostile-{number}"
            )
            with suppress(grpc.RpcError):
                send(named.SerializeToString() + events, timeout=60)

    for _ in range(THREADS):
        threading.Thread(target=flood, daemon=True).start()


def read_slowly(services: Services) -> None:
    """Streams of a large run of which a first piece is read and no other."""
    stub = journal_pb2_grpc.JournalServiceStub(services.connector.open("journal"))
    run_id = services.journal.create_run()
    for number in range(16):
        event = journal_pb2.NewEvent(event="x", payload_json=PAYLOAD)
        request = journal_pb2.AppendEventsRequest(
            run_id=run_id, request_id=f"row-{number}", events=[event] * EVENTS
        )
        stub.AppendEvents(request, timeout=60)
    held = []
    for _ in range(STREAMS):
        stream = stub.ReadJournal(journal_pb2.ReadJournalRequest(run_id=run_id))
        try:
            next(stream)
        except grpc.RpcError:
            continue
        held.append(stream)
    assert held


def main() -> None:
    kind, folder = sys.argv[1:]
    os.nice(19)  # it would have a machine of its own
    with Services(Path(folder)) as services:
        (write if kind == "writer" else read_slowly)(services)
        print("at it", flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main()
