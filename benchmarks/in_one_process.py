"""CPU-bound work, ours and the peer's in one process: `python -m benchmarks.in_one_process GROUP
FOLDER [quick]` under the peer's interpreter, with our packages on its path. A figure a line.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.measuring import (
    Figure,
    Setting,
    cpu_seconds,
    durations,
    rates,
    wall_seconds,
)
from benchmarks.receipts import KEY_ID, build_receipt, chunks_of, write_key

from bernstein_formats.canonical import Profile, canonical_bytes, canonical_text
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.journal_verify import JournalVerification, verify_journal
from bernstein_formats.llm_replay import Replay
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.rederivation import Rederivation, rederive
from bernstein_journal.run_log import RunLog
from bernstein_recorder.recorded_index import RecordedIndexes
from bernstein_recorder.recorded_runs import RecordedRuns
from bernstein_runtime.clock import SystemClock
from bernstein_store.files import FileStore

Figures = Iterator[Figure]


def our_verify(path: Path) -> JournalVerification:
    return verify_journal(chunks_of(path))


def our_rederive(path: Path) -> Rederivation:
    return rederive(chunks_of(path), path.parent.name)


def verification(setting: Setting) -> Figures:
    peer = import_module("bernstein.core.replay.journal")
    import_module("bernstein.core.security.agent_card_signer")  # it imports this while it hashes
    cases = [
        ("verify std", rows.std_events, setting.count(100_000), Profile.PY_JSON),
        ("verify mixed", rows.mixed_events, setting.count(20_000), Profile.PY_JSON),
        ("verify nested", rows.nested_events, setting.count(50_000), Profile.PY_JSON),
        ("verify jcs-v2", rows.std_events, setting.count(20_000), Profile.JCS),
    ]
    for name, events, count, profile in cases:
        path = rows.write_run(setting.folder, name.replace(" ", "-"), events(count), profile)
        assert our_verify(path).head == peer.verify_journal(path).head
        yield rates(
            name,
            setting.repeats,
            count,
            cpu_seconds(partial(our_verify, path)),
            cpu_seconds(partial(peer.verify_journal, path)),
        )


def canonical(setting: Setting) -> Figures:
    jcs = import_module("bernstein.core.security.agent_card_signer").canonicalize_jcs
    count = setting.count(20_000)
    values: list[Any] = [{**payload, "event": event} for event, payload in rows.std_events(count)]
    texts = [json.dumps(value).encode() for value in values]
    # Name, ours with its input, the peer's with its own.
    cases: list[tuple[str, Callable[[Any], object], list[Any], Callable[[Any], object], list[Any]]]
    cases = [
        ("canonical bytes from text", to_py_json, texts, peer_text_bytes, texts),
        ("canonical bytes from value", value_to_py_json, values, peer_value_bytes, values),
        ("jcs bytes from text", to_jcs, texts, jcs, values),
    ]
    for name, ours, our_input, theirs, peer_input in cases:
        yield rates(
            name,
            setting.repeats,
            count,
            cpu_seconds(partial(for_each, ours, our_input)),
            cpu_seconds(partial(for_each, theirs, peer_input)),
        )


def for_each(work: Callable[[Any], object], given: list[Any]) -> None:
    """Results are dropped at once: keeping them would measure memory."""
    for each in given:
        work(each)


def to_py_json(text: bytes) -> bytes:
    return canonical_text(text, Profile.PY_JSON)


def to_jcs(text: bytes) -> bytes:
    return canonical_text(text, Profile.JCS)


def value_to_py_json(value: Any) -> bytes:
    return canonical_bytes(value, Profile.PY_JSON)


def peer_text_bytes(text: bytes) -> str:
    return peer_value_bytes(json.loads(text))


def peer_value_bytes(value: Any) -> str:
    """What the peer hashes; it has no function of its own for it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def rederivation(setting: Setting) -> Figures:
    peer = import_module("bernstein.core.replay.rederive")
    count, tasks, plans = setting.count(100_000), setting.count(5_000), setting.count(500)
    cases = [
        ("re-derive, one plan row", rows.one_plan_events(count), count + 1),
        ("re-derive, 500 plan rows", rows.many_plans_events(tasks, plans), 2 * tasks + plans),
    ]
    for number, (name, events, event_count) in enumerate(cases):
        path = rows.write_run(setting.folder, f"rederive-{number}", events)
        sandboxes = iter(range(1_000))

        def theirs(path: Path = path, sandboxes: Iterator[int] = sandboxes) -> Any:
            sandbox = setting.folder / f"sandbox-{path.parent.name}-{next(sandboxes)}"
            return peer.rederive_run(path, sandbox=sandbox)

        assert our_rederive(path).ok
        assert theirs().ok
        yield rates(
            name,
            setting.repeats,
            event_count,
            cpu_seconds(partial(our_rederive, path)),
            cpu_seconds(theirs),
        )


def receipts(setting: Setting) -> Figures:
    peer = import_module("bernstein.core.replay.run_receipt")
    kms = import_module("bernstein.core.security.lineage_kms")
    count = setting.count(100_000)
    rows.write_run(setting.folder, "receipt", rows.std_events(count))
    key, key_path = write_key(setting.folder)
    ours, theirs = setting.folder / "ours.json", setting.folder / "theirs.json"

    def peer_build() -> None:
        adapter = kms.FileBasedKMSAdapter(key_path, kid=KEY_ID)
        peer.build_run_receipt("receipt", setting.folder, adapter, output_path=theirs)

    def our_build() -> None:
        build_receipt(setting.folder, "receipt", key, ours)

    yield rates(
        "receipt build", setting.repeats, count, cpu_seconds(our_build), cpu_seconds(peer_build)
    )
    assert ours.read_bytes() == theirs.read_bytes(), "the receipts must be the same bytes"
    data = ours.read_bytes()
    assert verify_receipt(data).ok
    yield rates(
        "receipt verify",
        setting.repeats,
        count,
        cpu_seconds(lambda: verify_receipt(data)),
        cpu_seconds(lambda: peer.verify_run_receipt(data)),
    )


def replays(setting: Setting) -> Figures:
    peer = import_module("bernstein.core.orchestration.deterministic")
    sdd, count = setting.folder, setting.count(100_000)
    rows.write_calls(sdd, "recorded", count)
    store, numbers = FileStore(sdd), iter(range(1_000))
    warm = sdd / "svc" / "index"

    def our_open(folder: Path = warm) -> Replay:
        runs = RecordedRuns(store, RecordedIndexes(store, folder))
        return runs.replay("recorded", strict=True, expected=None)[0]

    def peer_open() -> Any:
        return peer.load_replay_store("recorded", sdd)

    def open_without_index() -> Replay:
        return our_open(sdd / f"index-{next(numbers)}")

    our_open()
    repeats = setting.repeats
    warm_open, cold_open = wall_seconds(our_open), cpu_seconds(open_without_index)
    yield durations("replay open, index there", repeats, warm_open, wall_seconds(peer_open))
    yield durations("replay open, no index yet", repeats, cold_open, cpu_seconds(peer_open))
    few = min(count, 20_000)
    wanted = [request for request, _ in islice(rows.calls(few), few)]

    def our_look_ups() -> float:
        replay = our_open()
        return cpu_seconds(lambda: [replay.look_up(request) for request in wanted])()

    def peer_look_ups() -> float:
        opened = peer_open()
        return cpu_seconds(
            lambda: [opened.get_replay(request.prompt, request.model) for request in wanted]
        )()

    yield rates("replay look-ups", repeats, few, our_look_ups, peer_look_ups)


def resuming(setting: Setting) -> Figures:
    """Until the next row may be made: both verify what is there."""
    peer = import_module("bernstein.core.replay.journal")
    import_module("bernstein.core.security.agent_card_signer")
    rows.write_run(setting.folder, "ours", rows.std_events(10_000))
    rows.write_run(setting.folder, "theirs", rows.std_events(10_000))
    store, clock = FileStore(setting.folder), SystemClock()
    yield durations(
        "resume a journal of 10,000 rows",
        setting.repeats,
        cpu_seconds(lambda: RunLog(store, "ours", clock).close()),
        cpu_seconds(lambda: peer.EventJournal.resume("theirs", setting.folder)),
    )


def appending(setting: Setting) -> Figures:
    peer = import_module("bernstein.core.replay.journal")
    count = 20_000 if not setting.quick else 5_000
    events = list(rows.std_events(count))
    encoded = [(event, json.dumps(payload).encode()) for event, payload in events]
    store, numbers = FileStore(setting.folder), iter(range(1_000))

    def peer_append() -> None:
        journal = peer.EventJournal(f"theirs-{next(numbers)}", setting.folder)
        for event, payload in events:
            journal.record(event, **payload)

    def synced(batch_size: int) -> Callable[[], None]:
        def append() -> None:
            log, head = store.open_log(f"runs/ours-{next(numbers)}/journal.jsonl"), ChainHead()
            for start in range(0, count, batch_size):
                lines = []
                for event, payload in encoded[start : start + batch_size]:
                    line, head = next_row(head, event, payload, 1_700_000_000.5, 1.25)
                    lines.append(line)
                log.append(b"\n".join(lines) + b"\n", ())
            log.close()

        return append

    def unsynced() -> None:
        path = setting.folder / f"unsynced-{next(numbers)}"
        file, head = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), ChainHead()
        for event, payload in encoded:
            line, head = next_row(head, event, payload, 1_700_000_000.5, 1.25)
            os.write(file, line + b"\n")
        os.close(file)

    for batch_size in 64, 256:
        yield rates(
            f"local append, synced per {batch_size} rows",
            setting.repeats,
            count,
            wall_seconds(synced(batch_size)),
            wall_seconds(peer_append),
        )
    yield rates(
        "local append, not synced, row by row",
        setting.repeats,
        count,
        cpu_seconds(unsynced),
        cpu_seconds(peer_append),
    )


GROUPS: dict[str, Callable[[Setting], Figures]] = {
    "verification": verification,
    "canonical": canonical,
    "rederivation": rederivation,
    "receipts": receipts,
    "replays": replays,
    "resuming": resuming,
    "appending": appending,
}


def main() -> None:
    group, folder, *rest = sys.argv[1:]
    for figure in GROUPS[group](Setting(Path(folder), quick="quick" in rest)):
        print(figure.as_line(), flush=True)


if __name__ == "__main__":
    main()
