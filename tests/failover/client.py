"""A client of the fleet that goes on by itself: `client.py KIND NAME RUN_ID ANSWERS`.

What was answered is a line of ANSWERS before the next is asked, so that a client that is killed
leaves word of all that it was told. It ends at SIGTERM, after the answer it waits for.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bernstein_client.connection import Services
from bernstein_formats.canonical import JsonValue

# What an orchestrator does between two events; without it 16 clients only measure two processors.
PAUSE_SECONDS = 0.05
Told = dict[str, Any]


def appending(services: Services, run_id: str, name: str) -> Callable[[int], Told]:
    def append(number: int) -> Told:
        event: dict[str, JsonValue] = {"client": name, "n": number}
        return {"index": services.journal.append(run_id, "x", event).first_index}

    return append


def sealing(services: Services, run_id: str, name: str) -> Callable[[int], Told]:
    def seal(number: int) -> Told:
        made = services.journal.create_run(f"{run_id}-{number}")
        services.journal.append(made, "x", {"client": name, "n": number})
        return {"run_id": made, "rows": services.journal.finish_run(made).row_count}

    return seal


def recording(services: Services, run_id: str, name: str) -> Callable[[int], Told]:
    session = services.recorder.open_session(run_id).session_id

    def record(number: int) -> Told:
        answer = services.recorder.call(
            session, lane=name, model="scripted-small", provider="openai",
            prompt=f"{name} {number}", temperature="0", max_tokens="10",
        )  # fmt: skip
        return {"key": answer.key, "text": answer.text}

    return record


KINDS = {"append": appending, "seal": sealing, "record": recording}


def main() -> None:
    kind, name, run_id, answers = sys.argv[1:5]
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with Services(Path.cwd() / ".sdd", os.environ) as services, Path(answers).open("a") as out:
        work = KINDS[kind](services, run_id, name)
        number = 0
        while not ended.wait(PAUSE_SECONDS):
            began = time.monotonic()
            told = work(number)
            line = {"n": number, "began": began, "ended": time.monotonic(), **told}
            out.write(json.dumps(line) + "\n")
            out.flush()
            number += 1


if __name__ == "__main__":
    main()
