"""One recording file: group commit, retries, verbatim appends, and a disk that fails."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.errors import (
    DiskFull,
    HeadMoved,
    RequestIdReused,
    RowMalformed,
    StoreFailed,
)
from bernstein_formats.llm_calls import Caller, CallRequest
from bernstein_recorder.recording import Recording, Summary, Tally
from bernstein_recorder.recordings import KEPT_OPEN, Recordings
from bernstein_runtime.clock import FixedClock
from bernstein_store.files import FileStore

RUN = "run-1"
CALL = CallRequest(model="m", prompt="p")


class FaultyLog:
    """A log whose next appends fail as told, or wait until let go."""

    def __init__(self, log):
        self.log = log
        self.failures = []
        self.appended = []
        self.gate = None
        self.closed = False

    @property
    def size(self):
        return self.log.size

    @property
    def marks(self):
        return self.log.marks

    def catch_up(self):
        return []

    def append(self, data, marks):
        if self.gate:
            self.gate()
        if self.failures:
            raise self.failures.pop(0)
        self.log.append(data, marks)
        self.appended.append(data)

    def close(self):
        self.closed = True
        self.log.close()


class Store(FileStore):
    def open_log(self, name, *, private=False):
        self.log = FaultyLog(super().open_log(name, private=private))
        return self.log


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def recording(store):
    opened = Recording(store, RUN, FixedClock())
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / RUN / "llm_calls.jsonl"


def caller(number):
    return Caller(lane=f"lane-{number}", request_id=f"r{number}")


def summary_of(data, calls):
    return Summary(calls, len(data), hashlib.sha256(data).digest())


def test_a_recorded_call_is_in_the_file_and_in_the_summary(recording, path):
    recording.record(CALL, "an answer", caller(1))
    row = json.loads(path.read_bytes())
    assert (row["response"], row["request_id"], row["lane"]) == ("an answer", "r1", "lane-1")
    assert row["ts"] == FixedClock().now
    assert recording.summary() == summary_of(path.read_bytes(), 1)


def test_a_summary_is_the_same_after_opening_again(store, recording):
    recording.record(CALL, "a", caller(1))
    recording.record(CALL, "", caller(2))
    before = recording.summary()
    recording.close()
    again = Recording(store, RUN, FixedClock())
    assert again.summary() == before
    again.close()


def test_a_recorded_request_is_answered_from_the_file_also_after_opening_again(store, recording):
    recording.record(CALL, "once", caller(1))
    recording.close()
    again = Recording(store, RUN, FixedClock())
    row = again.answered(CALL, caller(1))
    assert row is not None
    assert row["response"] == "once"
    assert again.answered(CALL, caller(2)) is None
    again.close()


@pytest.mark.parametrize(
    ("call", "who"),
    [
        (CallRequest(model="m", prompt="another"), caller(1)),
        (CallRequest(model="m", prompt="p", parameters={"seed": 1}), caller(1)),
        (CALL, Caller("another lane", "r1")),
    ],
)
def test_a_request_id_stands_for_one_call_only(recording, call, who):
    recording.record(CALL, "once", caller(1))
    with pytest.raises(RequestIdReused):
        recording.answered(call, who)


def test_what_comes_during_a_sync_is_written_with_one_sync(store, recording, path):
    entered, go_on = threading.Event(), threading.Event()

    def gate():
        entered.set()
        assert go_on.wait(10)

    store.log.gate = gate
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(recording.record, CALL, "0", caller(0))
        assert entered.wait(10)
        rest = [pool.submit(recording.record, CALL, str(n), caller(n)) for n in range(1, 20)]
        while len(recording._queue.waiting) < 19:
            pass
        go_on.set()
        for future in [first, *rest]:
            future.result(10)
    assert [data.count(b"\n") for data in store.log.appended] == [1, 19]
    assert recording.summary() == summary_of(path.read_bytes(), 20)


def test_a_full_disk_fails_everybody_who_waited_and_nobody_after(store, recording, path):
    recording.record(CALL, "before", caller(1))
    before = recording.summary()
    store.log.failures = [DiskFull("no space")]
    with pytest.raises(DiskFull):
        recording.record(CALL, "lost", caller(2))
    assert recording.summary() == before
    assert recording.failure is None
    assert recording.answered(CALL, caller(2)) is None
    recording.record(CALL, "after", caller(3))
    assert recording.summary() == summary_of(path.read_bytes(), 2)


def test_a_recording_that_failed_otherwise_is_opened_anew_for_the_next_session(store):
    recordings = Recordings(store, FixedClock())
    broken = recordings.take(RUN)
    store.log.failures = [StoreFailed("sync failed")]
    with pytest.raises(StoreFailed):
        broken.record(CALL, "lost", caller(1))
    again = recordings.take(RUN)
    assert again is not broken
    again.record(CALL, "kept", caller(1))
    recordings.close()


def test_two_sessions_share_the_one_writer_of_a_run(store):
    recordings = Recordings(store, FixedClock())
    assert recordings.take(RUN) is recordings.take(RUN)
    recordings.close()


def test_recordings_that_nobody_uses_are_closed_in_the_end(store):
    recordings, logs = Recordings(store, FixedClock()), []
    for number in range(KEPT_OPEN + 3):
        recordings.take(f"run-{number}")
        logs.append(store.log)
        recordings.release(f"run-{number}")
    assert [log.closed for log in logs] == [True] * 3 + [False] * KEPT_OPEN
    recordings.close()
    assert all(log.closed for log in logs)


def test_a_recording_is_found_only_while_somebody_records(store):
    recordings = Recordings(store, FixedClock())
    taken = recordings.take(RUN)
    assert recordings.find(RUN) is taken
    recordings.release(RUN)
    assert recordings.find(RUN) is None
    assert recordings.take(RUN) is taken
    recordings.close()


def test_nothing_is_recorded_behind_a_cut_line(store, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"key": "k", "response": "a"}\n{"key": "k", "resp')
    recording = Recording(store, RUN, FixedClock())
    with pytest.raises(RowMalformed, match="line 2 is cut off"):
        recording.check_appendable()
    with pytest.raises(RowMalformed):
        recording.record(CALL, "glued", caller(1))
    assert path.read_bytes().endswith(b'"resp')
    recording.close()


def test_stored_calls_are_appended_as_they_are(recording, path):
    first, second = b'{"key":"k","response":1}\r\n\xff{', b"}\n"
    assert recording.append_verbatim(first, 0) == len(first)
    assert recording.append_verbatim(second, len(first)) == len(first + second)
    assert path.read_bytes() == first + second
    assert recording.summary() == summary_of(first + second, 1)


def test_stored_calls_sent_again_land_once(recording, path):
    data = b'{"key":"k","response":"a"}\n'
    recording.append_verbatim(data, 0)
    assert recording.append_verbatim(data, 0) == len(data)
    assert recording.append_verbatim(data[5:9], 5) == len(data)
    assert path.read_bytes() == data


@pytest.mark.parametrize("start", [-1, 1, 5, 1000])
def test_stored_calls_for_another_place_are_refused_with_the_size(recording, start):
    recording.append_verbatim(b"0123456789", 0)
    with pytest.raises(HeadMoved) as caught:
        recording.append_verbatim(b"abcdefghijk", start)
    assert caught.value.metadata["size_bytes"] == "10"


ROWS = st.lists(
    st.sampled_from(
        [
            b'{"key":"k","response":""}\n',
            b'{"key":"k","response":null,"request_id":"r1"}\n',
            b'{"key":1,"response":"x"}\n',
            b"[]\n",
            b"\n",
            b"torn {\n",
            b"\xff\n",
            b'{"key":"k","response":"last"}',
        ]
    )
)


@given(ROWS, st.lists(st.integers(0, 200)))
def test_a_tally_does_not_depend_on_how_the_bytes_arrive(rows, cuts):
    data = b"".join(rows)
    whole, pieces = Tally(), Tally()
    whole.feed(data)
    ends = sorted(min(cut, len(data)) for cut in cuts)
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        pieces.feed(data[start:end])
    assert pieces.summary() == whole.summary()
    assert pieces.rows == whole.rows
    assert whole.summary().sha256 == hashlib.sha256(data).digest()
