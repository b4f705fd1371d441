"""Both programs append in turn to one spine and one audit log, and each verifies the other."""

import gzip
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bernstein_formats.audit_log import AuditFields, AuditWalk, read_audit_row, segment_lines
from bernstein_formats.errors import Broken
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.mac import MacKeys, mac_keys
from bernstein_formats.spine import SpineFields, seal_fields
from bernstein_formats.spine_verify import SpineStatus, verify_spine
from bernstein_signer.mac_rows import make_audit_row, make_spine_row

KEY_TEXT = "5f" * 32
KEYS = mac_keys(KEY_TEXT.encode())
TEXTS = ("src/p.py", "src/ü ö.py", "😀/x", 'a"b\\c', "tab\there", "é")
ROUNDS = range(int(os.environ.get("BERNSTEIN_TEST_CASES", "50")))

pytestmark = pytest.mark.peer


def chosen(random: Random, number: int) -> dict[str, Any]:
    """Arguments that the peer's writer takes."""
    entry = {
        "artifact_path": f"{random.choice(TEXTS)}{number}",
        "content": random.choice(TEXTS),
        "actor": random.choice(TEXTS),
        "step_id": f"step-{number}",
        "model": random.choice(["", *TEXTS]),
        "timestamp": random.choice([0, number, 1_772_000_000_123_456_789]),
    }
    if random.random() < 0.3:
        entry |= {"traceparent": "00-1-2-01", "baggage": "bernstein-x=1"}
    return entry


def append_ours(path: Path, fields: SpineFields, keys: MacKeys = KEYS) -> None:
    """What journal and signer do together."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_bytes().splitlines() if path.exists() else []
    made = make_spine_row(lines[-1] if lines else b"", len(lines), fields, keys)
    with path.open("ab") as file:
        file.write(made.line + b"\n")
    path.with_name("spine.head").write_bytes(made.head_json)


def fields_of(entry: dict[str, Any]) -> SpineFields:
    content = sha256(entry.pop("content").encode()).hexdigest()
    return SpineFields(content_hash=f"sha256:{content}", **entry)


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_spine_is_written_in_turns_and_verified_by_both(
    peer: Any, tmp_path: Path, seed: int
) -> None:
    random, path, number = Random(seed), tmp_path / "r" / "spine.jsonl", 0  # noqa: S311
    theirs: dict[str, Any] = {}
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(0, 3)):
            append_ours(path, fields_of(chosen(random, number)))
            number += 1
        entries = [chosen(random, number + offset) for offset in range(random.randint(0, 2))]
        number += len(entries)
        request = {"root": str(tmp_path), "key": KEY_TEXT, "entries": entries}
        theirs = peer.ask({"spine": "r", **request})
        assert theirs["errors"] == []
    data = path.read_bytes() if path.exists() else b""
    ours = verify_spine([data], KEYS)
    assert (ours.status, ours.count) == (theirs["status"], theirs["count"])
    assert ours.head_hash == theirs["head"]
    assert ours.count == number


@pytest.mark.parametrize("seed", ROUNDS)
def test_rows_and_head_file_are_the_peers_byte_for_byte(
    peer: Any, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)  # noqa: S311
    entries = [chosen(random, number) for number in range(random.randint(1, 5))]
    peer.ask({"spine": "r", "root": str(tmp_path / "a"), "key": KEY_TEXT, "entries": entries})
    for entry in entries:
        append_ours(tmp_path / "b" / "r" / "spine.jsonl", fields_of(dict(entry)))
    for name in ("spine.jsonl", "spine.head"):
        assert (tmp_path / "b/r" / name).read_bytes() == (tmp_path / "a/r" / name).read_bytes()


@pytest.mark.parametrize("seed", ROUNDS)
def test_whatever_the_peer_finds_in_a_spine_ours_finds(
    peer: Any, tmp_path: Path, seed: int
) -> None:
    random, path = Random(seed), tmp_path / "r" / "spine.jsonl"  # noqa: S311
    for number in range(3):
        append_ours(path, fields_of(chosen(random, number)))
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(7)
    path.write_bytes(data)
    ours = verify_spine([bytes(data)], KEYS)
    theirs = peer.ask({"spine": "r", "root": str(tmp_path), "key": KEY_TEXT, "entries": []})
    if theirs["status"] in {"tampered", "unreadable"}:
        assert ours.status is SpineStatus.TAMPERED


def test_the_peer_reads_our_seal_out_of_the_spine(peer: Any, tmp_path: Path) -> None:
    line, head = next_row(ChainHead(), "run_started", {"n": 1}, 1.0, 0.0)
    runs = tmp_path / "runs" / "r"
    runs.mkdir(parents=True)
    (runs / "journal.jsonl").write_bytes(line + b"\n")
    key_path = tmp_path / "audit.key"
    key_path.write_text(KEY_TEXT)
    key_path.chmod(0o600)
    append_ours(tmp_path / "lineage/r/spine.jsonl", seal_fields("r", head.head_hash, "0" * 64, 1))
    request = {"sealed_head": "r", "sdd_dir": str(tmp_path), "key_path": str(key_path)}
    assert peer.ask(request) == {"head": head.head_hash}
    done = peer.run(
        "replay", "r", "--verify", "--as-json", "--sdd-dir", tmp_path,
        env={"BERNSTEIN_AUDIT_KEY_PATH": str(key_path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["identity"] == "verified"


def log_event(random: Random, number: int) -> dict[str, Any]:
    details: dict[str, Any] = {"n": number, random.choice(TEXTS): [1, None, 1.5, True, {"a": "é"}]}
    return {
        "event_type": random.choice(["run.start", "tâche"]),
        "actor": random.choice(TEXTS),
        "resource_type": "run",
        "resource_id": f"r-{number}",
        "details": details,
    }


def log_lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    archived = [(path.stem, gzip.decompress(path.read_bytes())) for path in folder.rglob("*.gz")]
    live = [(path.name, path.read_bytes()) for path in folder.glob("*.jsonl")]
    yield from sorted([*archived, *live])


def our_verdict(folder: Path) -> str:
    walk = AuditWalk(KEYS)
    try:
        for name, data in log_lines(folder):
            walk.begin_segment(name)
            for line in segment_lines([data]):
                walk.add(line)
    except Broken as error:
        return error.message
    return ""


def append_event_ours(folder: Path, event: dict[str, Any], timestamp: str) -> None:
    folder.mkdir(exist_ok=True)
    segments = [data for _, data in log_lines(folder) if data]
    previous = segments[-1].splitlines()[-1] if segments else b""
    line = make_audit_row(previous, timestamp, AuditFields(**event), KEYS)
    newest = max([path.name for path in folder.glob("*.jsonl")] + [f"{timestamp[:10]}.jsonl"])
    with (folder / newest).open("ab") as file:
        file.write(line + b"\n")


@pytest.mark.parametrize("seed", ROUNDS)
def test_an_audit_log_is_written_in_turns_and_verified_by_both(
    peer: Any, tmp_path: Path, seed: int
) -> None:
    random, folder, number = Random(seed), tmp_path / "audit", 0  # noqa: S311
    for _ in range(random.randint(1, 3)):
        for _ in range(random.randint(0, 3)):
            timestamp = f"2020-01-{number + 1:02}T10:00:00.000001Z"
            append_event_ours(folder, log_event(random, number), timestamp)
            number += 1
        events = [log_event(random, number + offset) for offset in range(random.randint(0, 2))]
        request = {"key": KEY_TEXT, "events": events, "archive": random.random() < 0.5}
        assert peer.ask({"audit": str(folder), **request}) == {"ok": True, "errors": []}
        assert our_verdict(folder) == ""


@pytest.mark.parametrize("seed", ROUNDS)
def test_whatever_the_peer_finds_in_an_audit_log_ours_finds(
    peer: Any, tmp_path: Path, seed: int
) -> None:
    random, folder = Random(seed), tmp_path / "audit"  # noqa: S311
    for number in range(3):
        timestamp = f"2026-03-01T10:00:0{number}.000000Z"
        append_event_ours(folder, log_event(random, number), timestamp)
    path = next(folder.glob("*.jsonl"))
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(7)
    path.write_bytes(data)
    theirs = peer.ask({"audit": str(folder), "key": KEY_TEXT, "events": [], "archive": False})
    if not theirs["ok"]:
        assert our_verdict(folder)


def test_our_rows_of_the_named_events_are_what_the_peer_would_write() -> None:
    line = make_audit_row(
        b"", "2026-11-30T19:37:29.856707Z",
        AuditFields("a", "b", "c", "d", {"n": 1}, is_anchored=True), KEYS,
    )  # fmt: skip
    assert read_audit_row(line)["details"] == {"n": 1, "prev_chain_digest": "0" * 64}
