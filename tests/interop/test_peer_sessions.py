"""Step journals and their receipts go both ways: who wrote a step makes no difference."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bernstein_formats.errors import JournalError
from bernstein_formats.redaction import RedactionPolicy, redacted_rows
from bernstein_formats.session_archive import JOURNAL, members
from bernstein_formats.session_diff import path_diff
from bernstein_formats.session_journal import next_step, parse_step
from bernstein_formats.session_journal_reader import entries
from bernstein_formats.session_journal_verify import recover_steps, verify_steps
from bernstein_formats.session_receipt import ReceiptRows, receipt_parts
from bernstein_formats.session_receipt_verify import verify_session_receipt

CASES = int(os.environ.get("BERNSTEIN_TEST_CASES", "50"))
SEEDS = range(CASES)
TEXTS = [
    "",
    "plain",
    "naïve",
    "漢字",
    "😀",
    '"\\/',
    "\x00\x1f\x7f",
    "\u2028\u2029",
    "a\r\nb\t",
    "\ud800",
]
NUMBERS = [
    0,
    -1,
    2**53 + 1,
    2**70,
    -0.0,
    1.0,
    0.1,
    1e16,
    1e21,
    1e-7,
    5e-324,
    1.7976931348623157e308,
]

pytestmark = pytest.mark.peer


def random_value(random: Random, depth: int = 0) -> Any:
    if depth == 3 or random.random() < 0.6:
        return random.choice([random.choice(TEXTS), random.choice(NUMBERS), None, True, False])
    if random.random() < 0.5:
        return [random_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {
        f"{random.choice(TEXTS)}{number}": random_value(random, depth + 1)
        for number in range(random.randrange(4))
    }


def random_step(random: Random) -> dict[str, Any]:
    step: dict[str, Any] = {"input_hash": random.randbytes(32).hex()}
    for name in ("model", "prompt", "effort"):
        step[name] = random.choice([None, random.choice(TEXTS)])
    for name in ("tool_call", "tool_result"):
        step[name] = random_value(random)
    step["blob_refs"] = [random.randbytes(32).hex() for _ in range(random.randrange(3))]
    return step


def random_steps(random: Random) -> list[dict[str, Any]]:
    return [random_step(random) for _ in range(random.randint(1, 6))]


def we_append(path: Path, steps: list[dict[str, Any]]) -> None:
    """What our journal does when it opens a file and appends."""
    stored = path.read_bytes() if path.exists() else b""
    recovered = recover_steps([stored], str(path))
    kept = stored[: recovered.size] + (b"\n" if recovered.newline_missing else b"")
    head = recovered.head
    for number, step in enumerate(steps):
        line, head = next_step(head, parse_step(json.dumps(step).encode()), 1.7e9 + number)
        kept += line + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kept)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "journal" / "agent" / "000000.jsonl"


def written_by_both(peer: Any, journal: Path, random: Random) -> str:
    """A journal to which both append in turn; gives its head."""
    head = ""
    for _ in range(random.randint(2, 4)):
        if random.random() < 0.5:
            we_append(journal, random_steps(random))
        request = {"steps": random_steps(random), "folder": str(journal.parent)}
        head = peer.ask(request)["head"]
    return head


@pytest.mark.parametrize("seed", SEEDS)
def test_both_go_on_where_the_other_stopped(peer: Any, journal: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - repeatable cases, no secrets
    head = written_by_both(peer, journal, random)
    stored = journal.read_bytes()
    found = verify_steps([stored])
    assert (found.ok, found.head_hash) == (True, head)
    if random.random() < 0.3:  # a crash while the last row was written
        journal.write_bytes(stored[: -random.randint(1, 60)])
    we_append(journal, random_steps(random))
    again = peer.ask({"steps": random_steps(random), "folder": str(journal.parent)})
    found = verify_steps([journal.read_bytes()])
    assert (found.ok, found.head_hash) == (True, again["head"])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_steps_make_the_same_hashes(peer: Any, tmp_path: Path, seed: int) -> None:
    steps = random_steps(Random(seed))  # noqa: S311 - likewise
    theirs = peer.ask({"steps": steps, "folder": str(tmp_path / "theirs")})
    ours = tmp_path / "ours" / "000000.jsonl"
    we_append(ours, steps)
    assert [row["step_hash"] for row in entries([ours.read_bytes()])] == theirs["hashes"]


@pytest.mark.parametrize("seed", SEEDS)
def test_receipts_verify_on_both_sides(peer: Any, tmp_path: Path, journal: Path, seed: int) -> None:
    head = written_by_both(peer, journal, Random(seed))  # noqa: S311 - likewise
    exported = ["replay", "export", "agent", "theirs.tar", "--sdd-dir", tmp_path]
    assert peer.run(*exported, cwd=tmp_path).exit == 0
    theirs = (tmp_path / "theirs.tar").read_bytes()
    found = verify_session_receipt(theirs)
    assert (found.ok, found.head_hash) == (True, head)

    rows = ReceiptRows()
    content = b"".join(rows.lines([journal.read_bytes()]))
    manifest = rows.manifest("agent", "2026-01-01T00:00:00Z", "x")
    ours = b"".join(receipt_parts(manifest, b"", (len(content), [content]), []))
    (tmp_path / "ours.tar").write_bytes(ours)
    verdict = peer.run("replay", "verify", tmp_path / "ours.tar", "--as-json")
    assert (verdict.exit, json.loads(verdict.stdout)["head_hash"]) == (0, head)
    assert member(ours, JOURNAL) == member(theirs, JOURNAL)


def member(archive: bytes, name: str) -> bytes:
    return next(each.content(archive) for each in members(archive) if each.name == name)


@pytest.mark.parametrize("seed", SEEDS)
def test_redacted_receipts_are_the_peers_where_they_may_be(
    peer: Any, tmp_path: Path, journal: Path, seed: int
) -> None:
    written_by_both(peer, journal, Random(seed))  # noqa: S311 - likewise
    published = ["replay", "publish", "agent", "out.tar", "--yes-i-want-to-publish"]
    assert peer.run(*published, "--sdd-dir", tmp_path, cwd=tmp_path).exit == 0
    policy = RedactionPolicy(keep_input_hash=True)
    ours = b"".join(redacted_rows(entries([journal.read_bytes()]), policy))
    assert ours == member((tmp_path / "out.tar").read_bytes(), JOURNAL)

    stricter = list(redacted_rows(entries([journal.read_bytes()]), RedactionPolicy()))
    rows = ReceiptRows()
    content = b"".join(rows.lines(stricter))
    manifest = rows.manifest("agent", "2026-01-01T00:00:00Z", "x")
    parts = receipt_parts(manifest, b"", (len(content), [content]), [])
    (tmp_path / "ours.tar").write_bytes(b"".join(parts))
    assert peer.run("replay", "verify", tmp_path / "ours.tar").exit == 0


@pytest.mark.parametrize("seed", range(min(CASES, 10)))
def test_a_path_diff_is_the_peers_byte_for_byte(peer: Any, tmp_path: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - likewise
    steps = random_steps(random)
    other = [*steps[:-1], random_step(random), random_step(random)]
    root = tmp_path / "runtime" / "journal"
    for name, appended in (("left", steps), ("right", other)):
        peer.ask({"steps": appended, "folder": str(root / name)})
    # It stores the comparison before it prints it, which half a surrogate pair makes it fail at.
    peer.run("replay", "debug", "left", "right", "--sdd-dir", tmp_path)
    theirs = (tmp_path / "runtime" / "debug" / "left__right.pathdiff.json").read_bytes()
    left, right = (
        entries([(root / name / "000000.jsonl").read_bytes()]) for name in ("left", "right")
    )
    assert path_diff(left, right).file_bytes() == theirs


@pytest.mark.parametrize("seed", range(min(CASES, 10)))
def test_an_edit_is_refused_by_both(peer: Any, journal: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - likewise
    peer.ask(
        {"steps": [{"input_hash": "a" * 64, "prompt": "secret"}], "folder": str(journal.parent)}
    )
    we_append(journal, random_steps(random))
    journal.write_bytes(journal.read_bytes().replace(b"secret", b"edited"))
    with pytest.raises(JournalError):
        recover_steps([journal.read_bytes()], "journal")
    with pytest.raises(AssertionError, match="JournalError"):
        peer.ask({"steps": [], "folder": str(journal.parent)})
