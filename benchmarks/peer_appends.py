"""The peer's own appends, none of them synced: one measurement a line on stdin, seconds a line out.

`python -m benchmarks.peer_appends FOLDER COUNT` under the peer's interpreter.
"""

import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.rows import std_events


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    module = import_module("bernstein.core.replay.journal")
    import_module("bernstein.core.security.agent_card_signer")
    events = list(std_events(count))
    for number, _ in enumerate(sys.stdin):
        journal = module.EventJournal(f"peer-{number}", folder)
        began = time.perf_counter()
        for event, payload in events:
            journal.record(event, **payload)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
