"""Repairing a stored run: what is taken out is kept, and what was acknowledged is never dropped."""

from pathlib import Path

import pytest

from bernstein_formats import paths
from bernstein_formats.errors import JournalError
from bernstein_formats.journal_verify import JournalSeal, verify_journal
from bernstein_journal.repair import Repairer
from bernstein_journal.run_log import Append, RunLog
from bernstein_runtime.clock import FixedClock
from bernstein_store.files import FileStore

F07 = Path(__file__).parents[1] / "vectors/data/field/F07"
INTACT = (F07 / "intact.jsonl").read_bytes()
GLUED = (F07 / "nul_glued.jsonl").read_bytes()
RUN = "r1"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    made = FileStore(tmp_path)
    made.make_run(RUN)
    return made


def journal(store: FileStore) -> Path:
    return store.path(paths.journal_path(RUN))


def append(store: FileStore, request_id: str = "q", count: int = 1) -> None:
    log = RunLog(store, RUN, FixedClock())
    batch = log.begin_batch()
    log.add(batch, Append(RUN, [("x", b"{}")] * count, request_id, None))
    log.store(batch)
    log.close()


def test_a_torn_tail_is_cut_kept_and_the_run_goes_on(store: FileStore) -> None:
    journal(store).write_bytes(INTACT + b'{"ts": 17')

    done = Repairer(store).repair(RUN, None, recover=False)

    assert (done.repair.repaired, done.kept) == (True, f"{paths.journal_path(RUN)}.torn-1")
    assert journal(store).read_bytes() == INTACT
    assert store.get(done.kept) == b'{"ts": 17'
    append(store)
    assert verify_journal([journal(store).read_bytes()]).intact


def test_a_second_repair_finds_nothing_to_do_and_keeps_nothing(store: FileStore) -> None:
    journal(store).write_bytes(INTACT)
    done = Repairer(store).repair(RUN, None, recover=False)

    assert (done.repair.repaired, done.kept, done.repair.event_count) == (False, "", 3)
    assert [path.name for path in journal(store).parent.iterdir()] == ["journal.jsonl"]


def test_earlier_kept_files_are_not_overwritten(store: FileStore) -> None:
    for number in (1, 2):
        journal(store).write_bytes(INTACT + b"torn %d" % number)
        done = Repairer(store).repair(RUN, None, recover=False)
        assert store.get(done.kept) == b"torn %d" % number
        assert done.kept.endswith(f".torn-{number}")


def test_a_glued_row_is_recovered_only_when_asked_and_the_original_is_kept(
    store: FileStore,
) -> None:
    journal(store).write_bytes(GLUED)
    with pytest.raises(JournalError, match="recoverable"):
        Repairer(store).repair(RUN, None, recover=False)
    assert journal(store).read_bytes() == GLUED

    done = Repairer(store).repair(RUN, None, recover=True)

    assert journal(store).read_bytes() == INTACT
    assert store.get(done.kept) == GLUED
    assert done.kept.endswith(".repaired-1")
    append(store)


def test_a_missing_line_feed_is_put_back(store: FileStore) -> None:
    journal(store).write_bytes(INTACT.rstrip(b"\n"))

    done = Repairer(store).repair(RUN, None, recover=False)

    assert (done.repair.adds_newline, done.kept) == (True, "")
    assert journal(store).read_bytes() == INTACT


def test_a_run_of_ours_is_repaired_and_remembers_its_requests(store: FileStore) -> None:
    append(store, "q", 3)
    good = journal(store).read_bytes()
    first, rest = good.split(b"\n", 1)
    journal(store).write_bytes(first + b"\n" + b"\0" * 300 + rest)

    done = Repairer(store).repair(RUN, None, recover=True)

    assert (done.repair.event_count, done.repair.recovered_count) == (3, 1)
    assert journal(store).read_bytes() == good
    append(store, "q", 3)
    assert journal(store).read_bytes() == good
    append(store, "other")
    assert verify_journal([journal(store).read_bytes()]).count == 4


def test_acknowledged_rows_are_not_cut_off_with_a_damaged_end(store: FileStore) -> None:
    append(store, "q", 3)
    good = journal(store).read_bytes()
    last = good.splitlines(keepends=True)[-1]
    damaged = good[: -len(last)] + b"\0" * (len(last) - 1) + b"\n"
    journal(store).write_bytes(damaged)

    for recover in (False, True):
        with pytest.raises(JournalError, match="3 rows were acknowledged and 2"):
            Repairer(store).repair(RUN, None, recover=recover)

    assert journal(store).read_bytes() == damaged


def test_a_sealed_run_is_not_made_shorter_than_its_seal(store: FileStore) -> None:
    journal(store).write_bytes(INTACT + b"torn")
    head = verify_journal([INTACT]).head

    with pytest.raises(JournalError, match="sealed"):
        Repairer(store).repair(RUN, JournalSeal(head, 4), recover=False)

    assert Repairer(store).repair(RUN, JournalSeal(head, 3), recover=False).repair.repaired


ROWS = INTACT.splitlines(keepends=True)
WRONG = {
    "a broken chain": (ROWS[0] + ROWS[2], None, "prev_hash"),
    "a wrong copy": (INTACT.replace(b'"index": 1', b'"index": 7'), None, "index_wrong"),
    "a sealed run that is empty": (b"", JournalSeal(verify_journal([INTACT]).head, 3), "seal"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("recover", [False, True])
def test_what_no_repair_mends_is_said_to_be_wrong(
    store: FileStore, what: str, recover: bool
) -> None:
    content, seal, word = WRONG[what]
    journal(store).write_bytes(content)

    with pytest.raises(JournalError, match=f"{word}.*--verify"):
        Repairer(store).repair(RUN, seal, recover=recover)

    assert journal(store).read_bytes() == content


def test_a_run_without_rows_that_nobody_sealed_needs_no_repair(store: FileStore) -> None:
    journal(store).write_bytes(b"")
    assert not Repairer(store).repair(RUN, None, recover=False).repair.repaired
