"""Journals that the peer writes are read here to the same head, and the other way round."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bernstein_formats.canonical import Profile
from bernstein_formats.event_journal import ENVELOPE_NAMES, ChainHead, next_row
from bernstein_formats.journal_verify import verify_journal

PROFILES = [Profile.PY_JSON, Profile.JCS]
SEEDS = range(int(os.environ.get("BERNSTEIN_TEST_CASES", "50")) // 2)  # in both profiles
TEXTS = ["", "plain", "naïve", "漢字", "😀", '"\\/', "\x00\x1f\x7f", "\u2028\u2029", "a\r\nb\t"]
SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
NUMBERS = [0, -1, 2**53 + 1, 2**70, -0.0, 1.0, 0.1, 1e16, 1e21, 1e-7, SMALLEST, LARGEST]
# Members of a row that the writer adds to the payload.
WRITTEN = {*ENVELOPE_NAMES, "event", "hash_profile"}

pytestmark = pytest.mark.peer


def random_value(random: Random, depth: int = 0) -> object:
    scalar = random.choice(
        [
            random.choice(TEXTS),
            random.choice(NUMBERS),
            random.randint(-(10**30), 10**30),
            random.uniform(-1, 1) * 10.0 ** random.randint(-320, 300),
            random.choice([None, True, False]),
        ]
    )
    if depth == 4 or random.random() < 0.6:
        return scalar
    if random.random() < 0.5:
        return [random_value(random, depth + 1) for _ in range(random.randrange(4))]
    return random_object(random, depth + 1)


def random_object(random: Random, depth: int = 0) -> dict[str, object]:
    names = [f"{random.choice(TEXTS)}{random.randrange(100)}" for _ in range(random.randrange(5))]
    return {name: random_value(random, depth) for name in names}


def random_events(seed: int) -> list[tuple[str, dict[str, object]]]:
    random = Random(seed)  # noqa: S311 - repeatable cases, no secrets
    types = ["task_claimed", "tick_start", "é", '"quoted"', "😀"]
    return [(random.choice(types), random_object(random)) for _ in range(random.randint(1, 15))]


def our_lines(profile: Profile, rows: list[dict[str, Any]]) -> tuple[list[bytes], str]:
    """Make the same rows with our writer: events, payloads and clock readings are given."""
    head = ChainHead(profile=profile)
    lines = []
    for row in rows:
        payload = {name: value for name, value in row.items() if name not in WRITTEN}
        line, head = next_row(head, row["event"], payload, row["ts"], row["elapsed_s"])
        lines.append(line)
    return lines, head.head_hash


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_our_writer_writes_the_peers_rows_byte_for_byte(
    peer: Any, tmp_path: Path, seed: int, profile: Profile
) -> None:
    events = random_events(seed)
    request = {"sdd_dir": str(tmp_path), "profile": profile.value, "hmac_key": None}
    theirs = peer.ask({"record": "run-1", "events": events, **request})
    lines = (tmp_path / "runs" / "run-1" / "journal.jsonl").read_bytes().splitlines()
    assert len(lines) == len(events)
    assert our_lines(profile, [json.loads(line) for line in lines]) == (lines, theirs["head"])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_we_verify_the_peers_journal_to_its_head(
    peer: Any, tmp_path: Path, seed: int, profile: Profile
) -> None:
    events = random_events(seed)
    request = {"sdd_dir": str(tmp_path), "profile": profile.value, "hmac_key": None}
    theirs = peer.ask({"record": "run-1", "events": events, **request})
    journal = (tmp_path / "runs" / "run-1" / "journal.jsonl").read_bytes()
    verdict = verify_journal([journal])
    assert (verdict.intact, verdict.head, verdict.count, verdict.profile) == (
        True,
        theirs["head"],
        len(events),
        profile,
    )


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_peer_verifies_our_rows_to_our_head(
    peer: Any, tmp_path: Path, seed: int, profile: Profile
) -> None:
    rows = [
        {"event": event, "ts": 1.7e9 + index, "elapsed_s": index / 7, **payload}
        for index, (event, payload) in enumerate(random_events(seed))
    ]
    lines, head_hash = our_lines(profile, rows)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert peer.ask({"verify": str(path)}) == {
        "chain_consistent": True,
        "head": head_hash,
        "count": len(rows),
        "discarded": [],
    }
