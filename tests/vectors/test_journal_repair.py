"""Repair and resume against the golden journals: the peer's answer, or ours where it loses rows."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats import paths
from bernstein_formats.errors import JournalError
from bernstein_formats.journal_repair import (
    Repair,
    physical_lines,
    plan_recovery,
    plan_tail_repair,
    recovered_lines,
)
from bernstein_formats.journal_verify import JournalSeal, verify_journal
from bernstein_journal.run_log import Append, RunLog
from bernstein_runtime.clock import FixedClock
from bernstein_store.files import FileStore

DATA = Path(__file__).parent / "data"
JOURNALS = DATA / "event-journal"
CASES = {
    path.parent.name: json.loads(path.read_bytes())
    for path in sorted(JOURNALS.glob("*/case.json"))
    if json.loads(path.read_bytes())["kind"] == "journal"
}
# Where the peer deletes a row, changes nothing though it says so, or dies: what ours does instead.
OURS = {
    "079-torn-lone-cr": (True, 2, "the CR-separated tail is really cut"),
    "082-no-final-newline": (True, 4, "the missing line feed is put back"),
    "083-torn-after-tamper": (None, 0, "the chain in front of the tail is broken"),
    "135-hostile-bigint": (None, 0, "a damaged line in the middle"),
    "136-hostile-nesting": (True, 5, "a line that is too deep is cut like any torn one"),
}
# Stored copies that nobody checks in the peer: such a journal is not continued here.
NOT_CONTINUED = {
    name
    for name in CASES
    if name[:3] in {"082", *map(str, range(102, 110)), "122", "124", "125", "128", "137"}
}


def bytes_of(name: str) -> bytes:
    path = JOURNALS / name / "journal.jsonl"
    return path.read_bytes() if path.exists() else b""


def expected(name: str, section: str) -> Any:
    return json.loads((JOURNALS / name / "expected.json").read_bytes())[section]


def seal_of(name: str) -> JournalSeal | None:
    seal = CASES[name].get("seal")
    return JournalSeal(**seal) if seal else None


def repaired(content: bytes, repair: Repair) -> bytes:
    if repair.keep_bytes is not None:
        content = content[: repair.keep_bytes]
    return content + (b"\n" if repair.adds_newline else b"")


@pytest.mark.parametrize("name", sorted(set(CASES) - set(OURS)))
def test_tail_repair_is_the_peers(name: str) -> None:
    content, wanted = bytes_of(name), expected(name, "repair")
    if "raises" in wanted:
        with pytest.raises(JournalError):
            plan_tail_repair(lambda: [content], seal_of(name))
        return

    repair = plan_tail_repair(lambda: [content], seal_of(name))

    assert wanted["repaired"] == repair.repaired
    assert wanted["removed_line_indices"] == list(repair.removed_line_indices)
    assert (wanted["event_count"], wanted["head"]) == (repair.event_count, repair.head)
    if wanted["sha256_after"] is not None:
        assert wanted["sha256_after"] == hashlib.sha256(repaired(content, repair)).hexdigest()


@pytest.mark.parametrize("name", sorted(OURS))
def test_where_the_peers_repair_loses_or_lies_ours_does_not(name: str) -> None:
    content = bytes_of(name)
    is_repaired, count, _ = OURS[name]
    if is_repaired is None:
        with pytest.raises(JournalError):
            plan_tail_repair(lambda: [content])
        return

    repair = plan_tail_repair(lambda: [content])
    after = verify_journal([repaired(content, repair)])

    assert (repair.repaired, repair.event_count) == (is_repaired, count)
    assert (after.intact, after.count, after.head) == (True, count, repair.head)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_journal_is_continued_where_the_peer_continues_it_and_nothing_is_wrong(
    name: str, tmp_path: Path
) -> None:
    run_id, wanted = CASES[name]["run_id"], expected(name, "resume_and_append")
    store = FileStore(tmp_path)
    store.make_run(run_id)
    journal = tmp_path / paths.journal_path(run_id)
    if not CASES[name]["missing"]:
        journal.write_bytes(bytes_of(name))
    if "raises" in wanted or name in NOT_CONTINUED:
        with pytest.raises(JournalError):
            RunLog(store, run_id, FixedClock(1800000000.25))
        assert journal.read_bytes() == bytes_of(name)
        return

    log = RunLog(store, run_id, FixedClock(1800000000.25))
    batch = log.begin_batch()
    request = Append(run_id, [("vector.after", b'{"note": "appended", "n": 1}')], "r", None)
    answer = log.add(batch, request)
    log.store(batch)
    log.close()

    assert wanted["next_index"] == answer.first_index
    assert wanted["head_after"] == answer.head_hash
    appended = journal.read_bytes()[len(bytes_of(name)) :]
    assert wanted["appended"] == appended.decode()
    after = verify_journal([journal.read_bytes()])
    facts = {member: getattr(after, member) for member in wanted["verify_after"]}
    assert wanted["verify_after"] == facts


def field(file: str) -> bytes:
    return (DATA / "field" / "F07" / file).read_bytes()


def test_f07_an_acknowledged_row_behind_nul_bytes_is_not_cut_off() -> None:
    content = field("nul_glued.jsonl")

    with pytest.raises(JournalError, match="1 row is recoverable after removing 300 NUL bytes"):
        plan_tail_repair(lambda: [content])

    repair = plan_recovery(lambda: [content])
    assert (repair.repaired, repair.recovered_count, repair.removed_line_indices) == (True, 1, (2,))
    assert b"".join(recovered_lines(lambda: [content])) == field("intact.jsonl")


def test_f07_nul_bytes_at_the_end_are_cut_off_and_in_the_middle_only_when_asked() -> None:
    tail, middle = field("nul_tail.jsonl"), field("nul_line.jsonl")

    assert repaired(tail, plan_tail_repair(lambda: [tail])) == field("intact.jsonl")
    with pytest.raises(JournalError, match="line 3"):
        plan_tail_repair(lambda: [middle])
    assert b"".join(recovered_lines(lambda: [middle])) == field("intact.jsonl")
    assert plan_recovery(lambda: [middle]).recovered_count == 0


def test_a_row_glued_behind_a_torn_one_is_recovered() -> None:
    rows = field("intact.jsonl").splitlines(keepends=True)
    glued = rows[0] + rows[1][:40] + rows[1] + rows[2]

    with pytest.raises(JournalError):
        plan_tail_repair(lambda: [glued])

    assert b"".join(recovered_lines(lambda: [glued])) == b"".join(rows)


def test_two_rows_on_one_line_are_recovered() -> None:
    rows = field("intact.jsonl").splitlines(keepends=True)
    glued = rows[0] + rows[1].rstrip(b"\n") + rows[2]

    assert plan_recovery(lambda: [glued]).recovered_count == 2
    assert b"".join(recovered_lines(lambda: [glued])) == b"".join(rows)


def test_a_recovery_that_would_leave_a_hole_is_refused() -> None:
    rows = field("intact.jsonl").splitlines(keepends=True)
    hole = rows[0] + b"\0" * 80 + b"\n" + rows[2]

    with pytest.raises(JournalError, match="cannot be recovered"):
        plan_recovery(lambda: [hole])


def test_a_recovery_that_the_seal_does_not_know_is_refused() -> None:
    content = field("nul_glued.jsonl")
    good = verify_journal([field("intact.jsonl")])

    assert plan_recovery(lambda: [content], JournalSeal(good.head, 3)).event_count == 3
    with pytest.raises(JournalError, match="sealed"):
        plan_recovery(lambda: [content], JournalSeal(good.head, 4))


def test_a_forged_row_on_a_damaged_line_is_not_taken_for_a_recoverable_one() -> None:
    rows = field("intact.jsonl").splitlines(keepends=True)
    forged = rows[0] + rows[1] + b"\0" * 9 + rows[2].replace(b'"event": "', b'"event": "x')

    assert plan_tail_repair(lambda: [forged]).event_count == 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_lines_are_cut_alike_whatever_the_chunks(size: int) -> None:
    content = b"a\nb\r\nc\rd\n\r\n\r\re"
    chunks = [content[at : at + size] for at in range(0, len(content), size)]

    found = list(physical_lines(chunks))

    assert found == [b"a\n", b"b\r\n", b"c\r", b"d\n", b"\r\n", b"\r", b"\r", b"e"]
