"""The journal's writer of steps, on a real store: sessions side by side, retries, limits."""

import threading
from pathlib import Path

import pytest

from bernstein_formats.errors import RequestIdReused
from bernstein_formats.session_journal import parse_step
from bernstein_formats.session_journal_verify import verify_steps
from bernstein_journal import steps as module
from bernstein_journal.step_log import AppendedSteps, AppendSteps, StepLog
from bernstein_journal.steps import StepJournals
from bernstein_runtime.clock import FixedClock
from bernstein_store.files import FileStore

STEP = parse_step(b'{"input_hash": "%s"}' % (b"a" * 64))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def append(
    journals: StepJournals, agent_id: str, request_id: str, count: int = 1, *, start: bool = False
) -> AppendedSteps:
    return journals.append(AppendSteps(agent_id, [STEP] * count, request_id, None, start))


def test_a_retry_gets_the_first_answer_again_across_restarts(store: FileStore) -> None:
    journals = StepJournals(store, FixedClock())
    first = append(journals, "a", "r1", 2, start=True)
    assert append(journals, "a", "r1", 2, start=True) == first
    journals.close()
    again = StepJournals(store, FixedClock())
    assert append(again, "a", "r1", 2, start=True) == first
    assert append(again, "a", "r2").first_seq == 2
    with pytest.raises(RequestIdReused):
        append(again, "a", "r2", 3)
    again.close()


def test_a_session_does_not_wait_for_another_one(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = StepJournals(store, FixedClock())
    append(journals, "slow", "r1", start=True)
    append(journals, "quick", "r1", start=True)
    opened, go_on = threading.Event(), threading.Event()

    class SlowLog(StepLog):
        def append(self, request: AppendSteps) -> AppendedSteps:
            opened.set()
            assert go_on.wait(10)
            return super().append(request)

    journals.close()
    monkeypatch.setattr(module, "StepLog", SlowLog)
    slow = threading.Thread(target=append, args=(journals, "slow", "r2"))
    slow.start()
    assert opened.wait(10)
    monkeypatch.undo()
    assert append(journals, "quick", "r2").first_seq == 1
    go_on.set()
    slow.join()
    journals.close()


def test_only_so_many_journals_stay_open(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_LOGS_MAX", 2)
    journals = StepJournals(store, FixedClock())
    for round_ in range(3):
        for agent_id in "abcde":
            append(journals, agent_id, f"r{round_}", start=not round_)
    journals.close()
    for agent_id in "abcde":
        found = verify_steps(store.read(f"runtime/journal/{agent_id}/000000.jsonl"))
        assert (found.ok, found.steps) == (True, 3)
