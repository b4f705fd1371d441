"""The recorder as a process on a Unix socket: record, replay without a model, misses, crashes."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from bernstein_api.recorder.v1 import recorder_pb2 as pb
from bernstein_api.recorder.v1 import recorder_pb2_grpc
from bernstein_formats import errors
from bernstein_formats.llm_calls import CallRequest, call_line
from bernstein_runtime.channel import open_channel
from bernstein_runtime.limits import PIECE_BYTES_MAX
from bernstein_runtime.places import make_state, places_for
from bernstein_runtime.status import error_from
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
KEY = "sk-secret-0123456789"


class Recorder:
    """One recorder process and a channel to it."""

    def __init__(self, sdd_dir, runtime_dir, **settings):
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(sdd_dir.parent),
            "XDG_RUNTIME_DIR": str(runtime_dir),
            **settings,
        }
        self.sdd_dir = sdd_dir
        self.places = places_for(sdd_dir, self.environ)
        make_state(self.places)
        self.log = self.places.log("recorder")
        self.start()

    def start(self):
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bernstein_recorder", str(self.sdd_dir)],
                stdin=subprocess.PIPE,
                stderr=output,
                env=self.environ,
                cwd="/",
            )
        assert self.process.stdin
        self.stdin = self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()  # left open: a service ends with whoever started it
        self.channel = open_channel(self.places.socket("recorder"))
        grpc.channel_ready_future(self.channel).result(15)
        self.stub = recorder_pb2_grpc.RecorderServiceStub(self.channel)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.channel.close()

    def stop(self):
        self.channel.close()
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(20)
        self.stdin.close()
        return code

    def send(self, method, request):
        try:
            return getattr(self.stub, method)(request, timeout=30)
        except grpc.RpcError as failure:
            raise error_from(failure) from None

    def open(self, run_id="run-1", request_id="open-1", **fields):
        return self.send(
            "OpenSession", pb.OpenSessionRequest(run_id=run_id, request_id=request_id, **fields)
        )

    def record(self, server, run_id="run-1", request_id="open-1"):
        return self.open(run_id, request_id, record=True, providers=[provider(server)]).session_id

    def replay(self, of="run-1", run_id="run-2", request_id="open-2", **fields):
        return self.open(run_id, request_id, replay_run_id=of, **fields)

    def call(self, session, request_id, prompt="draft", **fields):
        return self.send("Call", call_request(session, request_id, prompt, **fields))

    def close(self, session):
        return self.send("CloseSession", pb.CloseSessionRequest(session_id=session))

    def path(self, run_id="run-1"):
        return self.sdd_dir / "runs" / run_id / "llm_calls.jsonl"


def provider(server):
    return pb.Provider(name="openai", base_url=server.base_url, api_key=KEY)


def call_request(session, request_id, prompt="draft", **fields):
    defaults = {
        "lane": "task-1",
        "model": "scripted-small",
        "provider": "openai",
        "temperature": "0.7",
        "max_tokens": "4000",
    }
    return pb.CallRequest(
        session_id=session,
        request_id=request_id,
        prompt=prompt if isinstance(prompt, bytes) else prompt.encode(),
        **(defaults | fields),
    )


def text(response):
    return json.loads(response.response_json)


@pytest.fixture
def runtime_dir():
    folder = Path(tempfile.mkdtemp(prefix="rec-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def recorder(tmp_path, runtime_dir):
    sdd_dir = tmp_path / ".sdd"
    sdd_dir.mkdir()
    started = Recorder(sdd_dir, runtime_dir)
    yield started
    assert started.stop() == 0
    log = started.log.read_text()
    assert '"event": "bug"' not in log
    assert KEY not in log


def store_calls(recorder, run_id, rows):
    path = recorder.path(run_id)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(rows))
    return path


def peer_row(response, prompt="draft", **fields):
    call = CallRequest(model="scripted-small", prompt=prompt, provider="openai", **fields)
    return call_line(call, response, ts=1.5)


def test_a_recorded_run_is_replayed_without_a_model(recorder):
    with ModelServer() as server:
        session = recorder.record(server)
        prompts = ["draft one", "draft two", "draft two", "summarize"]
        live = [recorder.call(session, f"r{n}", prompt) for n, prompt in enumerate(prompts)]
        assert {each.source for each in live} == {pb.ANSWER_SOURCE_LIVE}
        account = recorder.close(session)
        assert server.calls == 4
    data = recorder.path().read_bytes()
    assert account.recording == pb.Recording(
        call_count=4, size_bytes=len(data), sha256=hashlib.sha256(data).digest()
    )
    opened = recorder.replay(expected=account.recording)
    assert opened.recording == account.recording
    replayed = [
        recorder.call(opened.session_id, f"r{n}", prompt) for n, prompt in enumerate(prompts)
    ]
    assert [text(each) for each in replayed] == [text(each) for each in live]
    assert {each.source for each in replayed} == {pb.ANSWER_SOURCE_RECORDED}
    end = recorder.close(opened.session_id)
    folder = recorder.places.sdd_dir / "runs" / "run-1"
    assert end.coverage_line == (
        f"replay-coverage run_dir={folder} cached=4 hits=4 misses=0 strict_violations=0 strict=True"
    )
    assert (end.hit_count, end.unused_count, end.recording) == (4, 0, account.recording)
    assert not recorder.path("run-2").exists()


def test_rows_of_equal_calls_are_the_peers_with_members_of_ours_behind(recorder):
    with ModelServer() as server:
        answer = recorder.call(recorder.record(server), "r1", "p", parameters_json=b'{"seed": 1}')
    row = json.loads(recorder.path().read_bytes())
    assert list(row)[:8] == [
        "ts", "key", "model", "provider", "temperature", "max_tokens", "prompt_len", "response"
    ]  # fmt: skip
    assert (row["key"], row["response"]) == (answer.key, text(answer))
    assert (row["lane"], row["request_id"], row["parameters"]) == ("task-1", "r1", {"seed": 1})


def test_a_miss_says_whether_the_call_is_unknown_used_up_or_changed(recorder):
    with ModelServer() as server:
        session = recorder.record(server)
        recorder.call(session, "r1", "known")
        recorder.call(session, "r2", "with seed", parameters_json=b'{"seed": 1}')
    replay = recorder.replay().session_id
    recorder.call(replay, "r1", "known")
    misses: list[tuple[str, str, dict[str, Any]]] = [
        ("used_up", "1 of 1 recorded answers are already used", {"prompt": "known"}),
        ("never_recorded", "never recorded", {"prompt": "quite another", "model": "m2"}),
        ("changed", "temperature", {"prompt": "known", "temperature": "1"}),
        ("changed", "seed", {"prompt": "with seed", "parameters_json": b'{"seed": 2}'}),
    ]
    for number, (kind, word, fields) in enumerate(misses):
        with pytest.raises(errors.ReplayMissError, match=word) as caught:
            recorder.call(replay, f"miss-{number}", **fields)
        facts = caught.value.metadata
        assert facts["kind"] == kind
        assert len(facts["key"]) == 64
        assert "BERNSTEIN_REPLAY_ALLOW_LIVE_MISS=1" in caught.value.message
        assert str(recorder.path()) in caught.value.message
    account = recorder.close(replay)
    assert (account.hit_count, account.miss_count, account.strict_violation_count) == (1, 0, 4)
    assert [(each.line, each.model) for each in account.unused_calls] == [(2, "scripted-small")]
    assert account.unused_count == 1


def test_asking_again_under_one_request_id_uses_up_one_answer(recorder):
    store_calls(recorder, "run-1", [peer_row("first"), peer_row("second")])
    replay = recorder.replay().session_id
    assert [text(recorder.call(replay, each)) for each in ("a", "a", "b")] == [
        "first",
        "first",
        "second",
    ]
    for _ in range(2):
        with pytest.raises(errors.ReplayMissError):
            recorder.call(replay, "c")
    account = recorder.close(replay)
    assert (account.hit_count, account.strict_violation_count) == (2, 1)
    assert recorder.close(replay) == account
    with pytest.raises(errors.Conflict, match="closed"):
        recorder.call(replay, "d")


def test_lanes_side_by_side_get_their_own_answers_back(recorder):
    lanes = [f"lane-{n}" for n in range(8)]

    def ask_all(session):
        def ask(lane):
            return [text(recorder.call(session, f"{lane}-{n}", lane=lane)) for n in range(5)]

        with ThreadPoolExecutor(len(lanes)) as pool:
            return dict(zip(lanes, pool.map(ask, lanes), strict=True))

    with ModelServer() as server:
        live = ask_all(recorder.record(server))
        assert server.calls == 40
    assert ask_all(recorder.replay().session_id) == live


@pytest.mark.parametrize("rows", [None, [], [b'{"key": 1}\n', b"torn"]])
def test_a_run_without_recorded_calls_is_refused_at_activation(recorder, rows):
    if rows is not None:
        store_calls(recorder, "run-1", rows)
    with pytest.raises(errors.ReplayRecordingMissingError, match="BERNSTEIN_DETERMINISTIC_SEED"):
        recorder.replay()
    assert not recorder.path("run-2").parent.exists()


def test_a_run_id_that_leads_elsewhere_is_refused_and_makes_nothing(recorder, subtests, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    for run_id in ("../../evil", "..", "", "a/b", "x" * 65, "a\x00b"):
        with subtests.test(run_id=run_id):
            refuse_run_id(recorder, run_id)
    assert sorted(tmp_path.rglob("*")) == before


def refuse_run_id(recorder, run_id):
    with pytest.raises(errors.InvalidInput):
        recorder.replay(of=run_id or "a/..")
    with pytest.raises(errors.InvalidInput):
        recorder.open(run_id, record=True)
    with pytest.raises(errors.InvalidInput):
        recorder.send("GetRecording", pb.GetRecordingRequest(run_id=run_id))


def test_a_run_does_not_replay_itself(recorder):
    with pytest.raises(errors.InvalidInput, match="itself"):
        recorder.replay(of="run-1", run_id="run-1")


def test_a_recording_that_its_journal_does_not_know_is_refused(recorder):
    path = store_calls(recorder, "run-1", [peer_row("one"), peer_row("two")])
    truth = recorder.send("GetRecording", pb.GetRecordingRequest(run_id="run-1")).recording
    facts = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"owt"'))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(errors.RecordingChanged, match="in SHA-256") as caught:
        recorder.replay(expected=truth)
    assert "bytes (journal" not in caught.value.message
    path.write_bytes(path.read_bytes() + peer_row("three"))
    with pytest.raises(errors.RecordingChanged, match=r"calls \(journal: 2, file: 3\), bytes"):
        recorder.replay(expected=truth, request_id="open-3")
    with pytest.raises(errors.RecordingChanged):
        recorder.replay(expected=truth, allow_live_miss=True, request_id="open-4")


def test_a_recording_forged_after_its_session_is_noticed_by_the_process_that_wrote_it(recorder):
    with ModelServer() as server:
        session = recorder.record(server)
        answer = text(recorder.call(session, "r1"))
        truth = recorder.close(session).recording
    data = recorder.path().read_bytes()
    recorder.path().write_bytes(data.replace(answer[:9].encode(), b"forgeries"))
    found = recorder.send("GetRecording", pb.GetRecordingRequest(run_id="run-1")).recording
    assert found.size_bytes == truth.size_bytes
    assert found.sha256 == hashlib.sha256(recorder.path().read_bytes()).digest()
    with pytest.raises(errors.RecordingChanged, match="SHA-256"):
        recorder.replay(expected=truth)


def test_a_recording_that_changes_during_the_replay_is_noticed(recorder):
    path = store_calls(recorder, "run-1", [peer_row("one"), peer_row("two")])
    replay = recorder.replay().session_id
    assert text(recorder.call(replay, "r1")) == "one"
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"owt"'))
    with pytest.raises(errors.RecordingChanged, match="while it was replayed"):
        recorder.call(replay, "r2")


def test_lines_that_are_no_calls_are_told_of_in_a_miss(recorder):
    rows = [b"\xff\xfe\n", peer_row("one"), b"[" * 3000 + b"\n", peer_row("torn")[:40]]
    store_calls(recorder, "run-1", rows)
    replay = recorder.replay().session_id
    assert text(recorder.call(replay, "r1")) == "one"
    with pytest.raises(errors.ReplayMissError, match=r"3 of the .* not recorded calls: 1, 3, 4\."):
        recorder.call(replay, "r2")


def test_whatever_was_recorded_is_served(recorder):
    responses = ["", None, 0, False, [1], {"a": "b"}, "\ud83d", "Grüße 🎻"]
    store_calls(recorder, "run-1", [peer_row(each) for each in responses])
    replay = recorder.replay().session_id
    served = [recorder.call(replay, f"r{number}") for number in range(len(responses))]
    assert [text(each) for each in served] == responses


def test_an_answer_larger_than_a_message_is_refused_with_its_line(recorder):
    store_calls(recorder, "run-1", [peer_row("x" * 5_000_000)])
    with pytest.raises(errors.LimitExceeded, match="line 1 has 5000002 bytes"):
        recorder.call(recorder.replay().session_id, "r1")


def test_a_live_miss_is_warned_of_and_makes_a_run_that_replays(recorder):
    store_calls(recorder, "run-1", [peer_row("recorded")])
    with ModelServer() as server:
        fields = {"allow_live_miss": True, "record": True, "providers": [provider(server)]}
        session = recorder.replay(**fields).session_id
        hit, miss = recorder.call(session, "r1"), recorder.call(session, "r2", "another")
        assert (text(hit), hit.warning) == ("recorded", "")
        assert "never recorded" in miss.warning
        assert miss.source == pb.ANSWER_SOURCE_LIVE
        account = recorder.close(session)
        assert server.calls == 1
    assert (account.hit_count, account.miss_count, account.strict_violation_count) == (1, 1, 0)
    again = recorder.replay(of="run-2", run_id="run-3", request_id="open-3").session_id
    assert text(recorder.call(again, "r1")) == "recorded"
    assert text(recorder.call(again, "r2", "another")) == text(miss)


def test_a_replay_that_may_go_live_needs_no_recording(recorder):
    with ModelServer() as server:
        session = recorder.replay(allow_live_miss=True, providers=[provider(server)]).session_id
        assert recorder.call(session, "r1").warning
    assert not recorder.path("run-2").exists()


def test_a_session_that_only_dials_leaves_no_file(recorder):
    with ModelServer() as server:
        session = recorder.open(record=False, providers=[provider(server)]).session_id
        first = recorder.call(session, "r1")
        assert recorder.call(session, "r1") == first
        assert server.calls == 1
        assert recorder.close(session).recording.call_count == 0
    assert not recorder.path().exists()


def test_after_kill_9_a_call_is_answered_from_the_file_without_the_model(recorder):
    with ModelServer() as server:
        session = recorder.record(server)
        first = recorder.call(session, "r1")
        recorder.kill()
        recorder.start()
        with pytest.raises(errors.SessionLost, match="open it again"):
            recorder.call(session, "r1")
        session = recorder.record(server)
        assert text(recorder.call(session, "r1")) == text(first)
        assert server.calls == 1
        recorder.call(session, "r2")
        assert recorder.close(session).recording.call_count == 2
    assert recorder.path().read_bytes().count(b"\n") == 2


def test_a_replay_does_not_survive_the_process(recorder):
    store_calls(recorder, "run-1", [peer_row("one"), peer_row("two")])
    replay = recorder.replay().session_id
    recorder.call(replay, "r1")
    recorder.kill()
    recorder.start()
    with pytest.raises(errors.SessionLost, match="start the replay again") as caught:
        recorder.call(replay, "r2")
    assert caught.value.metadata["kind"] == "replay"
    with pytest.raises(errors.SessionLost):
        recorder.close(replay)


def test_our_own_torn_tail_is_put_aside_after_a_crash(recorder):
    with ModelServer() as server:
        recorder.call(recorder.record(server), "r1")
        recorder.kill()
        whole = recorder.path().read_bytes()
        recorder.path().write_bytes(whole + whole[:50])
        recorder.start()
        recorder.call(recorder.record(server), "r2")
    assert recorder.path().read_bytes().startswith(whole + b'{"ts"')
    assert recorder.path().with_name("llm_calls.jsonl.torn-1").read_bytes() == whole[:50]


def test_a_recording_that_another_program_cut_is_not_continued(recorder):
    path = store_calls(recorder, "run-1", [peer_row("one"), peer_row("two")[:30]])
    before = path.read_bytes()
    for request_id in ("open-1", "open-2"):
        with pytest.raises(errors.RowMalformed, match="line 2 is cut off"):
            recorder.open(request_id=request_id, record=True)
    recorder.kill()
    recorder.start()
    with pytest.raises(errors.RowMalformed, match="line 2 is cut off"):
        recorder.open(request_id="open-3", record=True)
    assert path.read_bytes() == before


def test_a_writer_beside_us_is_noticed(recorder):
    with ModelServer() as server:
        session = recorder.record(server)
        recorder.call(session, "r1")
        with recorder.path().open("ab") as file:
            file.write(peer_row("foreign"))
        for request_id in ("r2", "r3"):
            with pytest.raises(errors.ForeignWriter):
                recorder.call(session, request_id)
        # The second was refused before a model was asked.
        assert server.calls == 2


def test_a_full_disk_fails_the_call_and_leaves_the_file_whole(recorder):
    with HugeAnswers() as server:
        session = recorder.record(server)
        recorder.call(session, "r1")
        before = recorder.path().read_bytes()
        pid, none = recorder.process.pid, resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (len(before) + 40, none))
        with pytest.raises(errors.DiskFull):
            recorder.call(session, "r2")
        assert recorder.path().read_bytes() == before
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (none, none))
        recorder.call(session, "r3")
        recorder.call(session, "r4")
        account = recorder.close(session)
    data = recorder.path().read_bytes()
    assert [json.loads(row)["request_id"] for row in data.splitlines()] == ["r1", "r3", "r4"]
    assert account.recording.sha256 == hashlib.sha256(data).digest()


def test_a_folder_that_cannot_be_made_is_named_before_any_call(recorder):
    (recorder.sdd_dir / "runs").write_text("in the way")
    with ModelServer() as server:
        with pytest.raises(errors.StoreFailed, match="runs"):
            recorder.record(server)
        assert server.calls == 0


UNUSABLE_CALLS: list[dict[str, Any]] = [
    {"prompt": "x\ud83d".encode("utf-8", "surrogatepass")},
    {"prompt": b"x" * (3 * 1024 * 1024 + 1)},
    {"temperature": "warm"},
    {"temperature": "nan"},
    {"max_tokens": ""},
    {"parameters_json": b"[]"},
    {"parameters_json": b"{"},
    {"parameters_json": b'{"a": NaN}'},
    {"parameters_json": b'{"a": 1, "a": 2}'},
    {"parameters_json": b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}"},
    {"parameters_json": b'{"a": ' + b"9" * 5000 + b"}"},
    {"parameters_json": b'{"a": "\\ud83d"}'},
    {"parameters_json": b'{"stream": true}'},
    {"lane": "x" * 129},
    {"provider": "none"},
    {"provider": "acme"},
    {"model": ""},
    {"model": "m" * 257},
    {"provider": "p" * 257},
    {"request_id": ""},
    {"request_id": "two words"},
    {"request_id": "x" * 65},
]


def test_a_call_that_cannot_be_made_is_refused_before_anything_is_written(recorder, subtests):
    with ModelServer() as server:
        session = recorder.record(server)
        for number, fields in enumerate(UNUSABLE_CALLS):
            with subtests.test(fields=str(fields)[:80]), pytest.raises(errors.InvalidInput):
                recorder.call(session, **({"request_id": f"r{number}"} | fields))
        assert server.calls == 0
    assert recorder.path().read_bytes() == b""


def test_opening_again_under_one_request_id_gives_the_same_session(recorder):
    first = recorder.open(record=True)
    assert recorder.open(record=True) == first
    with pytest.raises(errors.RequestIdReused):
        recorder.open(record=False)


def test_stored_calls_of_an_importer_replay_here(recorder):
    data = peer_row("one") + peer_row("two")
    for _ in range(2):
        answer = recorder.send("AppendCalls", pb.AppendCallsRequest(run_id="run-1", data=data))
        assert answer.size_bytes == len(data)
    with pytest.raises(errors.HeadMoved):
        recorder.send(
            "AppendCalls", pb.AppendCallsRequest(run_id="run-1", data=b"x", start_offset=7)
        )
    too_much = pb.AppendCallsRequest(run_id="run-1", data=b"x" * (PIECE_BYTES_MAX + 1))
    with pytest.raises(errors.LimitExceeded):
        recorder.send("AppendCalls", too_much)
    assert recorder.path().read_bytes() == data
    assert text(recorder.call(recorder.replay().session_id, "r1")) == "one"


def test_a_broken_index_file_is_made_again_and_a_missing_folder_does_not_matter(recorder):
    store_calls(recorder, "run-1", [peer_row("one")])
    index = recorder.places.state_dir / "index" / "run-1.idx"
    for number, damage in enumerate([b"", b"x", b"BSTCALL1" + bytes(200)]):
        replay = recorder.replay(run_id=f"run-{number}-again", request_id=f"open-{number}")
        assert text(recorder.call(replay.session_id, "r1")) == "one"
        assert index.stat().st_mode & 0o777 == 0o600
        index.write_bytes(damage)
    shutil.rmtree(index.parent)
    index.parent.write_text("in the way")
    assert text(recorder.call(recorder.replay(request_id="last").session_id, "r1")) == "one"


def test_a_key_reaches_the_provider_and_no_file_of_ours(recorder):
    with HugeAnswers() as server:
        recorder.call(recorder.record(server), "r1")
        assert server.authorization == f"Bearer {KEY}"
    for path in recorder.sdd_dir.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_process_without_live_calls_stays_small(recorder):
    store_calls(recorder, "run-1", [peer_row("one")])
    recorder.call(recorder.replay().session_id, "r1")
    status = Path(f"/proc/{recorder.process.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    assert resident < 60_000


def test_what_only_live_calls_need_is_not_imported_before():
    code = "import bernstein_recorder.__main__, sys; print('httpx2' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"False\n"


def test_a_second_process_for_the_same_folder_gives_way(recorder):
    again = subprocess.run(
        [sys.executable, "-m", "bernstein_recorder", str(recorder.sdd_dir)],
        stdin=subprocess.DEVNULL,  # started by hand: it does not wait for its turn
        env=recorder.environ,
        capture_output=True,
        check=False,
    )
    assert again.returncode == 1
    assert b"held by another live process" in again.stderr
    assert b"Traceback" not in again.stderr
    with pytest.raises(errors.ReplayRecordingMissingError):
        recorder.replay()


def test_an_idle_process_with_an_open_session_waits_and_one_without_ends(tmp_path, runtime_dir):
    sdd_dir = tmp_path / ".sdd"
    sdd_dir.mkdir()
    started = Recorder(sdd_dir, runtime_dir, BERNSTEIN_SVC_SUPERVISOR_IDLE_SECONDS="2")
    try:
        session = started.open(record=True).session_id
        with pytest.raises(subprocess.TimeoutExpired):
            started.process.wait(3)
        started.close(session)
        assert started.process.wait(20) == 0
    finally:
        assert started.stop() == 0


def test_sigterm_lets_a_call_in_flight_finish(recorder):
    with HugeAnswers(held=True) as server:
        session = recorder.record(server)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(recorder.call, session, "r1")
            assert server.asked.wait(10)
            recorder.process.send_signal(signal.SIGTERM)
            server.go_on.set()
            assert len(text(answer.result(20))) == 20_000
    assert recorder.process.wait(20) == 0
    assert recorder.path().read_bytes().count(b"\n") == 1


class HugeAnswers:
    """A model server of 20 kB answers that shows what it was sent and can be held back."""

    def __init__(self, *, held=False):
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.authorization = None
        if not held:
            self.go_on.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                outer.authorization = self.headers["authorization"]
                outer.asked.set()
                outer.go_on.wait(10)
                message = {"role": "assistant", "content": "x" * 20_000}
                body = json.dumps({"choices": [{"message": message}]}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
