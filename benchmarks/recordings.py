"""Recordings of agents' model traffic: how small they are, and what opening a long one takes.

Nothing of the peer's is held against it: it records finished texts only. Each figure is measured in
a process of its own: `python -m benchmarks.recordings WORK FOLDER COUNT`.
"""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measuring import Figure, Setting, cpu_seconds, peak_memory
from benchmarks.project import ROOT, PeerEnvironment

from bernstein_formats.http_exchange import (
    Answer,
    End,
    body_of,
    envelope_of,
    exchange_of,
    parse_exchange,
)
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_replay import LaneReplay
from bernstein_formats.paths import llm_http_bodies_path, llm_http_path
from bernstein_recorder.bodies import Bodies
from bernstein_recorder.exchanges import Exchanges
from bernstein_store.files import FileStore

RUN_ID = "recorded"
LONG = 100_000
TURNS = 41
BATCH = 500
LANES = 4


def recordings(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    """The group `recordings` of `make bench`."""
    percent = measured("percent", setting.folder / "short", TURNS)
    yield Figure("recording of 41 calls, of its JSON", "%", percent)
    count = setting.count(LONG)
    long = setting.folder / "long"
    measured("write", long, count)
    yield Figure("open a long recording, CPU", "ms", measured("open-cpu", long, count))
    yield Figure("memory of a long recording, proxy", "MiB", measured("open", long, count))
    yield Figure("memory of a long recording, recorder", "MiB", measured("bodies", long, count))


def measured(work: str, folder: Path, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.recordings", work, str(folder), str(count)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def percent(folder: Path, turns: int) -> float:
    store = FileStore(folder)
    exchanges, json_bytes = Exchanges(store, store), 0
    for seq, (asked, answered) in enumerate(conversation(turns), 1):
        request = HttpRequest("POST", "/anthropic/v1/messages", (), (("a", "b" * 600),), asked)
        answer = Answer(200, body_of(answered), End.COMPLETE, True, "tool_use")
        pieces = [(1, 900.1 + at) for at in range(len(answered))]
        envelope = envelope_of(request, (("c", "d" * 500),), pieces)
        row = exchange_of("a", seq, request, keyed(request), answer=answer, envelope=envelope)
        bodies = {body_of(each).sha256_hex: each for each in (asked, answered, envelope.data())}
        exchanges.record(RUN_ID, f"id-{seq}", bodies, [row.line()])
        json_bytes += sum(map(len, bodies.values()))
    exchanges.close()
    names = (llm_http_path(RUN_ID), llm_http_bodies_path(RUN_ID))
    return 100 * sum(store.size(name) or 0 for name in names) / json_bytes


def conversation(turns: int) -> Iterator[tuple[bytes, bytes]]:
    """Requests that repeat all that was said before, and short answers."""
    chosen = random.Random(7)  # noqa: S311 - the same each time
    words = [f"{chosen.getrandbits(28):x}" for _ in range(3000)]

    def text(size: int) -> str:
        return " ".join(chosen.choices(words, k=size // 8))

    system, messages = text(48_000), [text(400)]
    for _ in range(turns):
        answered = text(120)
        asked = {"model": "m", "system": system, "messages": messages}
        yield json.dumps(asked).encode(), answered.encode()
        messages = [*messages, answered, text(600)]


def write(folder: Path, count: int) -> float:
    store = FileStore(folder)
    exchanges = Exchanges(store, store)
    request = HttpRequest("POST", "/anthropic/v1/messages", (), (), b'{"model":"m"}')
    found = keyed(request)
    for start in range(0, count, BATCH):
        bodies: dict[str, bytes] = {}
        lines: list[bytes] = []
        for seq in range(start + 1, start + BATCH + 1):
            asked, answered = b'{"n":%d}' % seq, b"answer %d" % seq
            answer = Answer(200, body_of(answered), End.COMPLETE, True, "end_turn")
            envelope = envelope_of(request, (), [(len(answered), float(seq))])
            row = exchange_of(
                f"agent-{seq % LANES}", seq, request, found, answer=answer, envelope=envelope
            )
            key = hashlib.sha256(asked).hexdigest()
            lines.append(replace(row, request=body_of(asked), key=key).line())
            bodies |= {body_of(b).sha256_hex: b for b in (asked, answered, envelope.data())}
        exchanges.record(RUN_ID, f"id-{start}", bodies, lines)
    exchanges.close()
    return 0


def opened(folder: Path) -> list[LaneReplay]:
    """What the proxy holds of a recording that it replays."""
    with (folder / llm_http_path(RUN_ID)).open("rb") as file:
        exchanges = [parse_exchange(line, number) for number, line in enumerate(file, 1)]
    return [LaneReplay(f"agent-{lane}", exchanges) for lane in range(LANES)]


def open_cpu(folder: Path, _: int) -> float:
    return 1e3 * cpu_seconds(lambda: opened(folder))()


def open_memory(folder: Path, _: int) -> float:
    with peak_memory() as grown:
        kept = opened(folder)
        found = grown()
    assert kept
    return found


def bodies_memory(folder: Path, count: int) -> float:
    digest = bytes.fromhex(body_of(b"answer %d" % count).sha256_hex)
    with peak_memory() as grown:
        bodies = Bodies(FileStore(folder), llm_http_bodies_path(RUN_ID))
        assert bodies.get(digest) == b"answer %d" % count
        return grown()


WORKS = {
    "percent": percent,
    "write": write,
    "open-cpu": open_cpu,
    "open": open_memory,
    "bodies": bodies_memory,
}


def main() -> None:
    name, folder, count = sys.argv[1:]
    print(WORKS[name](Path(folder), int(count)))


if __name__ == "__main__":
    main()
