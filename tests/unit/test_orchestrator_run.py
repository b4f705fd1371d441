"""Whole runs and replays against services that chain rows and record calls in memory."""

import subprocess
import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bernstein_agent.sandbox import is_possible
from bernstein_cli.run_summary import summary_document, summary_lines
from bernstein_client.append_line import AppendResult
from bernstein_client.recorder import (
    Account,
    Answer,
    Provider,
    Recording,
    Session,
    UnusedCall,
)
from bernstein_client.values import FinishedRun, Verification
from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import (
    ChainBroken,
    DiskFull,
    InvalidInput,
    ProviderFailed,
    RecordingChanged,
    ReplayMissError,
    ReplayRecordingMissingError,
    RunExists,
    RunNotFound,
    SessionLost,
    Unavailable,
)
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.journal_verify import JournalSeal, verify_journal
from bernstein_formats.rederivation import rederive
from bernstein_orchestrator import sidecars
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.progress import (
    Noted,
    Progress,
    RunResult,
    TaskFinished,
    TaskStarted,
    Warned,
)
from bernstein_orchestrator.run import run_plan

CONFIG = "goal: Build it\ninternal_llm_provider: openai\ninternal_llm_model: small\n"
PLAN = """\
name: Two stages
context_files: [notes.txt]
constraints: [keep it small]
stages:
  - name: build
    steps:
      - {title: Model, files: [model.py], completion_signals: [{type: path_exists, path: model.py}]}
      - {title: Route, files: [route.py], priority: 1}
      - {title: Docs, role: docs}
  - name: check
    depends_on: [build]
    steps:
      - {title: Tests, role: qa, files: [a.py, b.py]}
"""
KEY = tuple[str, str, str]
Reply = Callable[[str, str], str]


class MemoryJournal:
    """Chains rows as the journal does."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}
        self.heads: dict[str, ChainHead] = {}
        self.files: dict[str, tuple[bytes, bytes]] = {}
        self.finished: set[str] = set()
        self.seals: dict[str, JournalSeal] = {}
        self.appends = 0
        self.fail_at = -1

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str:
        if run_id in self.lines:
            raise RunExists(f"run {run_id} exists")
        self.lines[run_id] = []
        self.heads[run_id] = ChainHead()
        self.files[run_id] = metadata, replay
        return run_id

    def append_many(
        self, run_id: str, events: Sequence[tuple[str, Mapping[str, JsonValue]]]
    ) -> AppendResult:
        assert run_id not in self.finished
        self.appends += 1
        if self.appends == self.fail_at:
            raise DiskFull("the disk is full")
        first = self.heads[run_id].index
        for event, payload in events:
            line, self.heads[run_id] = next_row(self.heads[run_id], event, dict(payload), 1.0, 0.0)
            self.lines[run_id].append(line)
        head = self.heads[run_id]
        return AppendResult(first, head.head_hash, head.index)

    def finish_run(self, run_id: str, *, spine_seal: bool = True) -> FinishedRun:
        self.finished.add(run_id)
        head = self.heads[run_id]
        self.seals[run_id] = JournalSeal(head.head_hash, head.index)
        notes = ("the spine has no seal",) if not spine_seal else ()
        return FinishedRun(head.head_hash, head.index, b"{}", notes)

    def read_journal(self, run_id: str) -> Iterator[bytes]:
        if run_id not in self.lines:
            raise RunNotFound(f"run {run_id}: there is none")
        yield from (line + b"\n" for line in self.lines[run_id])

    def verify_run(self, run_id: str) -> Verification:
        """As the journal would; a finished run has its seal, unless a test took it away."""
        chunks = list(self.read_journal(run_id))
        seal = self.seals.get(run_id)
        found = verify_journal(chunks, seal)
        return Verification(
            run_id=run_id,
            chain_consistent=found.chain_consistent,
            coverage=found.coverage,
            identity=found.identity,
            row_count=found.count,
            divergent_index=found.divergent_index,
            divergent_line=found.divergent_line,
            expected_hash="",
            actual_hash="",
            head_hash=found.head,
            discarded_lines=(),
            discarded_count=found.discarded_count,
            errors=found.errors,
            findings=(),
            flagged_steps=(),
            provider_errors=(),
            notes=(),
            report_path="",
            sealed_row_count=0 if seal is None else seal.event_count,
        )

    def cut(self, run_id: str, rows: int) -> None:
        """Have a run's journal without its last rows, and without the seal that tells of them."""
        del self.lines[run_id][-rows:]
        del self.seals[run_id]

    def rows(self, run_id: str) -> list[dict[str, JsonValue]]:
        return [parse_json(line) for line in self.lines[run_id]]  # type: ignore[misc]  # rows are objects

    def events(self, run_id: str) -> list[str]:
        return [str(row["event"]) for row in self.rows(run_id)]


class MemoryRecorder:
    """Records calls by lane and request, and answers a replay from them, strictly."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.calls: dict[str, list[tuple[KEY, str]]] = {}
        self.sessions: dict[str, tuple[str, str, bool, dict[KEY, deque[str]]]] = {}
        self.hits: dict[str, int] = defaultdict(int)
        self.live_count = 0
        self.closed: set[str] = set()
        self.barrier: threading.Barrier | None = None
        self._lock = threading.Lock()

    def open_session(
        self,
        run_id: str,
        *,
        replay_run_id: str = "",
        allow_live_miss: bool = False,
        record: bool = True,
        providers: Sequence[Provider] = (),
        expected: Recording | None = None,
    ) -> Session:
        queues: dict[KEY, deque[str]] = defaultdict(deque)
        if replay_run_id:
            assert expected == self.get_recording(replay_run_id)
            for key, text in self.calls[replay_run_id]:
                queues[key].append(text)
        else:
            assert providers
            if record:
                self.calls[run_id] = []
        self.sessions[run_id] = run_id, replay_run_id, allow_live_miss, queues
        return Session(run_id, expected)

    def call(
        self,
        session_id: str,
        *,
        lane: str,
        model: str,
        provider: str,
        prompt: str,
        temperature: str,
        max_tokens: str,
    ) -> Answer:
        assert (temperature, max_tokens) == ("0.7", "4000")
        run_id, replay_run_id, allow_live_miss, queues = self.sessions[session_id]
        key = lane, f"{provider}/{model}", prompt
        if replay_run_id:
            with self._lock:
                if queues.get(key):
                    self.hits[session_id] += 1
                    return Answer(queues[key].popleft(), "recorded", lane, "")
            if not allow_live_miss:
                raise ReplayMissError(f"no recorded call of {lane}", key=lane, model=model)
        if self.barrier is not None:
            self.barrier.wait(10)
        text = self.reply(lane, prompt)
        with self._lock:
            if session_id in self.closed:
                raise SessionLost("the session is closed")
            self.live_count += 1
            if run_id in self.calls:
                self.calls[run_id].append((key, text))
        return Answer(text, "live", lane, "called live" if replay_run_id else "")

    def close_session(self, session_id: str) -> Account:
        run_id, replay_run_id, _, queues = self.sessions[session_id]
        with self._lock:
            self.closed.add(session_id)
        unused = tuple(
            UnusedCall(1, key[0], key[1]) for key, texts in queues.items() for _ in texts
        )
        source = replay_run_id or run_id
        return Account(
            coverage_line=f"hits={self.hits[session_id]} misses=0",
            hit_count=self.hits[session_id],
            miss_count=0,
            strict_violation_count=0,
            unused_calls=unused,
            unused_count=len(unused),
            recording=self.get_recording(source) if source in self.calls else None,
        )

    def get_recording(self, run_id: str) -> Recording:
        if run_id not in self.calls:
            raise ReplayRecordingMissingError(f"run {run_id} has no recording")
        text = repr(self.calls[run_id]).encode()
        return Recording(len(self.calls[run_id]), len(text), sha256(text).hexdigest())


def helpful(lane: str, prompt: str) -> str:
    """Answer anything, never twice alike."""
    if "=== a.py" in prompt:
        return f"=== a.py\nA {lane} {token_hex(4)}\n=== b.py\nB"
    return f"answer to {lane}: {token_hex(4)}"


class World:
    """A project folder, its services, and what was told."""

    def __init__(self, folder: Path, plan: str = PLAN, reply: Reply = helpful) -> None:
        self.project = folder
        (folder / "bernstein.yaml").write_text(CONFIG)
        (folder / "notes.txt").write_text("remember\n")
        (folder / "plan.yaml").write_text(plan)
        self.journal = MemoryJournal()
        self.recorder = MemoryRecorder(reply)
        self.told: list[Progress] = []
        self.stop = threading.Event()
        self.options = RunOptions(
            plan_path=folder / "plan.yaml",
            project=folder,
            sdd_dir=folder / ".sdd",
            seed="42",
            providers=(Provider("openai", "http://user:secret@127.0.0.1:8/v1?k=1", "key"),),
            environment={"PATH": "/usr/bin:/bin", "BERNSTEIN_X": "no", "TOKEN": "t", "LC_ALL": "C"},
        )

    def run(self, **changes: object) -> RunResult:
        self.told.clear()
        options = replace(self.options, **changes)  # type: ignore[arg-type]  # fields by name
        return run_plan(
            options,
            journal=self.journal,
            recorder=lambda: self.recorder,
            report=self.told.append,
            clock=lambda: 1_700_000_000.0,
            stop=self.stop,
        )

    def texts(self, kind: type[Warned | Noted]) -> str:
        return "\n".join(each.text for each in self.told if isinstance(each, kind))

    def read(self, name: str) -> str:
        return (self.project / name).read_text()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def failing(times: int, lane_part: str = "", error: bool = False) -> Reply:
    """Fail the first calls whose lane has this part."""
    left = [times]

    def reply(lane: str, prompt: str) -> str:
        if lane_part in lane and left[0]:
            left[0] -= 1
            if error:
                raise ProviderFailed("the provider did not answer")
            return "nothing useful"
        return helpful(lane, prompt)

    return reply


def test_a_run_completes_and_writes_its_files(world: World) -> None:
    result = world.run()
    assert result.outcome == "completed"
    assert result.completed == ("Model", "Route", "Docs", "Tests")
    assert (result.failed, result.undone, result.next_step) == ((), (), "")
    assert world.read("model.py").startswith("answer to ")
    assert world.read("b.py") == "B\n"
    assert result.head_hash_hex == world.journal.heads[result.run_id].head_hash
    assert result.recording == world.recorder.get_recording(result.run_id)


def test_what_keeps_the_seal_out_of_the_spine_is_told_at_the_end(world: World) -> None:
    world.run()
    assert "the spine" not in world.texts(Noted)
    world.run(spine_seal=False)
    assert world.told[-1] == Noted("note: the spine has no seal")


def test_every_run_re_derives(world: World) -> None:
    result = world.run()
    answer = rederive(world.journal.read_journal(result.run_id), result.run_id)
    assert (answer.ok, answer.derived_head) == (True, result.head_hash_hex)


def test_rows_come_in_the_documented_order(world: World) -> None:
    result = world.run(max_agents=1)
    events = world.journal.events(result.run_id)
    claim = ["agent_spawned", "context.files_attached", "skills.injected", "task_claimed"]
    ended = ["tick_start", "task_completed", "agent_reaped"]
    expected = [
        *("run_started", "loaded_extension_set", "plan.graph", "plan.graph.full"),
        *("tick_start", "provider_state_capability", *claim),
        *(ended + claim) * 3,
        *ended,
        *("llm_recording", "run_completed", "run_quiescence"),
    ]
    assert events == expected


def test_payload_members_are_the_peers_in_its_order(world: World) -> None:
    rows = world.journal.rows(world.run().run_id)
    members = {str(row["event"]): list(row)[7:] for row in rows}
    assert members["run_started"] == [
        "run_id", "max_agents", "budget_usd", "git_sha", "git_branch", "config_hash", "gate_config",
    ]  # fmt: skip
    assert members["agent_spawned"] == [
        "agent_id", "role", "model", "provider", "task_ids", "agent_source",
        "endpoint_adapter_name", "endpoint_model", "endpoint_base_url", "endpoint_profile_name",
    ]  # fmt: skip
    assert members["task_completed"] == ["task_id", "agent_id", "cost_usd"]
    assert members["plan.graph.full"] == ["goal", "nodes", "digest", "rev", "task_count"]
    assert members["run_completed"] == ["run_id", "ticks", "fingerprint", "outcome"]
    assert members["run_quiescence"] == ["run_id", "verified", "residual", "method", "checked"]


def test_the_fingerprint_is_the_head_before_its_row(world: World) -> None:
    rows = world.journal.rows(world.run().run_id)
    assert rows[-2]["fingerprint"] == rows[-3]["event_hash"]
    assert rows[-2]["outcome"] == "completed"
    assert rows[-3]["event"] == "llm_recording"
    assert rows[-3]["call_count"] == 4


def test_no_key_of_an_address_comes_into_a_row(world: World) -> None:
    result = world.run()
    spawned = [r for r in world.journal.rows(result.run_id) if r["event"] == "agent_spawned"]
    assert {row["endpoint_base_url"] for row in spawned} == {"http://127.0.0.1:8/v1"}
    assert b"secret" not in b"".join(world.journal.lines[result.run_id])


def test_low_priority_numbers_go_first(world: World) -> None:
    world.run(max_agents=1)
    started = [each.title for each in world.told if isinstance(each, TaskStarted)]
    assert started == ["Route", "Model", "Docs", "Tests"]


def test_independent_tasks_run_side_by_side(world: World) -> None:
    world.recorder.barrier = threading.Barrier(3)
    world.options = replace(world.options, plan_path=world.project / "three.yaml")
    (world.project / "three.yaml").write_text(
        "stages: [{name: a, steps: [{title: A}, {title: B}, {title: C}]}]\n"
    )
    assert world.run(max_agents=3).outcome == "completed"


def test_a_replay_makes_no_live_call_and_reaches_the_recorded_head(world: World) -> None:
    recorded = world.run()
    live = world.recorder.live_count
    model = world.read("model.py")
    (world.project / "model.py").write_text("edited since\n")
    for room in (1, 2, 6):
        replayed = world.run(replay_run_id=recorded.run_id, max_agents=room, providers=())
        assert replayed.replay is not None
        assert replayed.replay.first_difference == ""
        assert replayed.replay.heads_equal
        assert replayed.is_good
        assert (replayed.replay.hit_count, replayed.replay.unused_count) == (4, 0)
        assert replayed.run_id != recorded.run_id
        assert (
            world.journal.files[replayed.run_id][1]
            == (
                f'{{"replay_of": "{recorded.run_id}", "recorded_head": "{recorded.head_hash_hex}",'
                ' "allow_live_miss": false}'
            ).encode()
        )
    assert world.recorder.live_count == live
    assert world.read("model.py") == "edited since\n"
    assert model != "edited since\n"


def test_a_context_file_that_the_run_itself_wrote_is_replayed_as_it_was(tmp_path: Path) -> None:
    plan = PLAN.replace("[notes.txt]", "[notes.txt, model.py, route.py]")
    world = World(tmp_path, plan)
    recorded = world.run(max_agents=1)
    replayed = world.run(replay_run_id=recorded.run_id)
    assert replayed.replay is not None
    assert (replayed.replay.first_difference, replayed.is_good) == ("", True)
    assert world.texts(Warned) == ""


def test_a_changed_context_file_is_named_and_missed(world: World) -> None:
    recorded = world.run()
    (world.project / "notes.txt").write_text("something else\n")
    with pytest.raises(ReplayMissError):
        world.run(replay_run_id=recorded.run_id)
    assert "notes.txt is not what" in world.texts(Warned)


def test_a_context_file_is_found_in_the_recorded_commit(world: World) -> None:
    for command in (
        ["init", "-q"],
        ["add", "notes.txt"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"],
    ):
        subprocess.run(["git", *command], cwd=world.project, check=True)
    recorded = world.run()
    (world.project / "notes.txt").write_text("something else\n")
    assert world.run(replay_run_id=recorded.run_id).is_good


def test_a_failed_signal_is_retried_and_replayed(tmp_path: Path) -> None:
    plan = (
        "stages: [{name: a, steps: [{title: A, files: [a.txt], completion_signals:"
        " [{type: file_contains, path: a.txt, contains: answer to}]}]}]\n"
    )
    world = World(tmp_path, plan, failing(2))
    recorded = world.run()
    finished = [each for each in world.told if isinstance(each, TaskFinished)]
    assert recorded.outcome == "completed"
    assert [each.is_retried for each in finished] == [True, True, False]
    assert finished[0].failed_signals == ("file_contains: a.txt :: answer to",)
    assert rederive(world.journal.read_journal(recorded.run_id), recorded.run_id).ok
    assert world.run(replay_run_id=recorded.run_id, max_retries=0).is_good


def test_a_provider_failure_is_a_failed_attempt_and_is_not_asked_for_in_replay(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, reply=failing(1, error=True))
    recorded = world.run()
    assert recorded.outcome == "completed"
    assert "task_retried" in world.journal.events(recorded.run_id)
    assert world.run(replay_run_id=recorded.run_id).is_good


def test_a_task_that_fails_for_good_leaves_its_dependants_undone(tmp_path: Path) -> None:
    world = World(tmp_path, reply=failing(99, error=True))
    result = world.run(max_retries=1)
    assert result.outcome == "failed"
    assert result.failed == ("Model", "Route", "Docs")
    assert result.undone == ("Tests",)
    assert "starts again" in result.next_step
    assert rederive(world.journal.read_journal(result.run_id), result.run_id).ok
    assert world.run(replay_run_id=result.run_id).is_good


def test_a_missing_block_is_a_failed_attempt_that_names_the_file(tmp_path: Path) -> None:
    world = World(tmp_path, reply=lambda lane, prompt: "=== a.py\nonly one")
    result = world.run(max_retries=0)
    assert result.failed == ("Tests",)
    failed = [each for each in world.told if isinstance(each, TaskFinished)][-1]
    assert failed.failed_signals == ("agent: the answer has no block for b.py",)
    assert not (world.project / "a.py").exists()


def test_a_file_that_could_not_be_written_then_replays_as_it_was(world: World) -> None:
    (world.project / "route.py").mkdir()
    recorded = world.run(max_retries=0)
    assert recorded.failed == ("Route",)
    (world.project / "route.py").rmdir()
    assert world.run(replay_run_id=recorded.run_id).is_good


def test_judges_are_recorded_calls_and_only_asked_when_the_rest_holds(tmp_path: Path) -> None:
    lanes = []

    def reply(lane: str, prompt: str) -> str:
        lanes.append(lane.partition("/")[2])
        if lane.endswith("-1/judge"):
            return "FAIL\nno"
        return "PASS" if "/" in lane else "work"

    plan = (
        "stages: [{name: a, steps: [{title: A, completion_signals: [{type: llm_judge, value: good},"
        " {type: llm_review, value: tidy}]}]}]\n"
    )
    world = World(tmp_path, plan, reply)
    recorded = world.run()
    assert recorded.outcome == "completed"
    assert lanes == ["", "review-1", "judge", "", "review-1", "judge"]
    assert world.run(replay_run_id=recorded.run_id).is_good


def test_test_verdicts_of_a_replay_are_the_recorded_ones(tmp_path: Path) -> None:
    plan = (
        "stages: [{name: a, steps: [{title: A, completion_signals:"
        " [{type: test_passes, command: test -e flag}]}]}]\n"
    )
    world = World(tmp_path, plan)
    (tmp_path / "flag").touch()
    recorded = world.run()
    assert recorded.outcome == "completed"
    (tmp_path / "flag").unlink()
    assert world.run(replay_run_id=recorded.run_id).is_good
    assert "taken from the recording" in world.texts(Noted)


def test_surroundings_that_differ_are_named_and_the_head_is_reached(world: World) -> None:
    recorded = world.run()
    (world.project / "bernstein.yaml").write_text(CONFIG + "cli: mock\n")
    assert world.run(replay_run_id=recorded.run_id).is_good
    assert "bernstein.yaml (its hash) differs from the recording" in world.texts(Warned)


def test_another_plan_is_refused_before_a_run_exists(world: World) -> None:
    recorded = world.run()
    (world.project / "plan.yaml").write_text(PLAN + "# one more line\n")
    with pytest.raises(InvalidInput, match="is not the plan that run"):
        world.run(replay_run_id=recorded.run_id)
    assert list(world.journal.lines) == [recorded.run_id]


def test_a_run_without_recording_is_refused_before_a_run_exists(world: World) -> None:
    unrecorded = world.run(seed="")
    assert "cannot be replayed" in world.texts(Noted)
    assert "llm_recording" not in world.journal.events(unrecorded.run_id)
    with pytest.raises(ReplayRecordingMissingError):
        world.run(replay_run_id=unrecorded.run_id)
    assert list(world.journal.lines) == [unrecorded.run_id]


def test_a_forged_recording_is_refused(world: World) -> None:
    recorded = world.run()
    key, _ = world.recorder.calls[recorded.run_id][0]
    world.recorder.calls[recorded.run_id][0] = key, "forged"
    with pytest.raises(RecordingChanged, match="not what its journal says"):
        world.run(replay_run_id=recorded.run_id)


def test_an_edited_journal_is_refused(world: World) -> None:
    recorded = world.run()
    lines = world.journal.lines[recorded.run_id]
    lines[5] = lines[5].replace(b"declared-blind", b"observed")
    with pytest.raises(ChainBroken, match="at row 5"):
        world.run(replay_run_id=recorded.run_id)


def test_a_miss_ends_the_replay_in_order_and_is_raised(world: World) -> None:
    recorded = world.run()
    (world.project / "bernstein.yaml").write_text(CONFIG.replace("small", "large"))
    with pytest.raises(ReplayMissError, match="no recorded call"):
        world.run(replay_run_id=recorded.run_id)
    run_id = list(world.journal.lines)[-1]
    assert run_id in world.journal.finished
    assert world.journal.rows(run_id)[-2]["outcome"] == "failed"
    assert rederive(world.journal.read_journal(run_id), run_id).ok
    assert "hits=0" in world.texts(Noted)


def test_a_live_miss_that_was_allowed_warns(world: World) -> None:
    recorded = world.run()
    world.recorder.calls[recorded.run_id].pop()
    world.journal.cut(recorded.run_id, 3)
    result = world.run(replay_run_id=recorded.run_id, allow_live_miss=True)
    assert "called live" in world.texts(Warned)
    assert "vouches" in world.texts(Warned)
    assert result.replay is not None


def test_a_run_that_was_cut_off_replays_to_where_it_ends(world: World) -> None:
    recorded = world.run(max_agents=1)
    world.journal.cut(recorded.run_id, 6)
    result = world.run(replay_run_id=recorded.run_id)
    assert result.replay is not None
    assert (result.replay.first_difference, result.is_good) == ("", True)
    assert result.replay.unused_count == 1
    assert "was cut off" in world.texts(Warned)
    assert "no seal says" in result.replay.unvouched


def test_a_replay_of_what_was_sealed_is_vouched_for(world: World) -> None:
    result = world.run(replay_run_id=world.run().run_id)
    assert result.replay is not None
    assert result.replay.unvouched == ""
    assert "vouches" not in world.texts(Warned)


def test_a_recording_without_the_rows_that_bind_it_is_replayed_but_never_as_a_plain_success(
    world: World,
) -> None:
    recorded = world.run()
    world.journal.cut(recorded.run_id, 3)
    key, _ = world.recorder.calls[recorded.run_id].pop()
    world.recorder.calls[recorded.run_id].append((key, "=== a.py\nforged\n=== b.py\nB"))

    result = world.run(replay_run_id=recorded.run_id)

    assert result.replay is not None
    assert "binds its recorded calls" in result.replay.unvouched
    assert "nothing vouches for this recording" in world.texts(Warned)
    document = summary_document(result)["replay"]
    assert isinstance(document, dict)
    assert document["unvouched"] == result.replay.unvouched
    assert next(summary_lines(result)).endswith("completed (unvouched)")


def test_a_journal_that_is_not_the_sealed_one_is_refused_before_a_run_exists(world: World) -> None:
    recorded = world.run()
    lines = world.journal.lines[recorded.run_id]
    world.journal.lines[recorded.run_id] = lines[:-3]
    with pytest.raises(RecordingChanged, match="the seal commits to"):
        world.run(replay_run_id=recorded.run_id)
    assert list(world.journal.lines) == [recorded.run_id]


def test_a_stop_releases_what_is_held_and_replays(world: World) -> None:
    started = threading.Event()

    def reply(lane: str, prompt: str) -> str:
        if "Model" in prompt.partition("# Task")[2]:
            started.set()
            world.stop.wait(10)
        return helpful(lane, prompt)

    world.recorder.reply = reply

    def stop_it() -> None:
        started.wait(10)
        world.stop.set()

    stopper = threading.Thread(target=stop_it)
    stopper.start()
    result = world.run()
    stopper.join()
    assert result.outcome == "interrupted"
    assert "Model" in result.undone
    assert "starts again" in result.next_step
    rows = world.journal.rows(result.run_id)
    assert rows[-2]["outcome"] == "interrupted"
    assert rederive(world.journal.read_journal(result.run_id), result.run_id).ok
    world.stop.clear()
    claims = sum(row["event"] == "task_claimed" for row in rows)
    releases = sum(row["event"] == "agent_reaped" for row in rows)
    assert claims == releases


def test_an_interrupted_run_replays_to_its_head(tmp_path: Path) -> None:
    world = World(tmp_path)

    def reply(lane: str, prompt: str) -> str:
        if "# Task\nDocs" in prompt:
            world.stop.set()
        return helpful(lane, prompt)

    world.recorder.reply = reply
    recorded = world.run(max_agents=1)
    assert recorded.outcome == "interrupted"
    world.stop.clear()
    replayed = world.run(replay_run_id=recorded.run_id)
    assert replayed.replay is not None
    assert (replayed.replay.first_difference, replayed.outcome) == ("", "interrupted")
    assert replayed.is_good


def test_a_full_disk_ends_the_run_with_its_own_error(world: World) -> None:
    world.journal.fail_at = 5
    with pytest.raises(DiskFull):
        world.run()
    run_id = list(world.journal.lines)[-1]
    assert world.journal.rows(run_id)[-2]["outcome"] == "failed"


def test_an_error_at_the_very_end_writes_no_second_end(world: World) -> None:
    def refuse(run_id: str, *, spine_seal: bool = True) -> FinishedRun:
        raise Unavailable("the signer is away")

    world.journal.finish_run = refuse  # type: ignore[method-assign]  # one failing answer
    with pytest.raises(Unavailable):
        world.run()
    run_id = list(world.journal.lines)[-1]
    assert world.journal.events(run_id).count("run_completed") == 1


def test_a_given_run_id_is_used_and_never_taken_twice(world: World) -> None:
    assert world.run(run_id="mine").run_id == "mine"
    with pytest.raises(RunExists):
        world.run(run_id="mine")


def test_run_ids_are_time_and_randomness(world: World) -> None:
    run_id = world.run().run_id
    assert run_id.startswith("20231114-221320-")
    assert len(run_id) == 22


def test_provider_none_names_the_step_and_both_remedies(world: World) -> None:
    (world.project / "bernstein.yaml").write_text("goal: x\n")
    with pytest.raises(InvalidInput) as caught:
        world.run()
    assert "step 'Model'" in caught.value.message
    assert "internal_llm_provider" in caught.value.message
    assert "agent: {command:" in caught.value.message
    assert world.journal.lines == {}


def test_a_provider_without_address_is_refused_before_a_run_exists(world: World) -> None:
    with pytest.raises(InvalidInput, match="no address"):
        world.run(providers=())
    assert world.journal.lines == {}


COMMAND_PLAN = """\
stages:
  - name: a
    steps:
      - title: Touch
        files: [out.txt]
        completion_signals: [{type: path_exists, path: out.txt}]
        agent:
          command: [sh, -c, 'env | sort > out.txt; echo done']
          environment: [TOKEN]
"""


def test_a_command_gets_the_allowed_environment_and_no_model_is_needed(tmp_path: Path) -> None:
    world = World(tmp_path, COMMAND_PLAN)
    (tmp_path / "bernstein.yaml").unlink()
    result = world.run(providers=())
    assert result.outcome == "completed"
    names = {line.partition("=")[0] for line in world.read("out.txt").splitlines()}
    by_shell, by_us = {"PWD", "SHLVL", "_", "OLDPWD"}, {sidecars.VARIABLE}
    assert names - by_shell - by_us == {"PATH", "TOKEN", "LC_ALL"}
    assert "llm_recording" not in world.journal.events(result.run_id)


def test_a_strict_replay_with_a_command_is_refused_and_names_the_task(tmp_path: Path) -> None:
    world = World(tmp_path, COMMAND_PLAN)
    recorded = world.run()
    with pytest.raises(InvalidInput, match=r"'Touch' is done by a program"):
        world.run(replay_run_id=recorded.run_id)


@pytest.mark.skipif(not is_possible(), reason="no way to take the network away here")
def test_offline_agents_run_in_a_copy_and_are_reported(tmp_path: Path) -> None:
    world = World(tmp_path, COMMAND_PLAN)
    recorded = world.run()
    (tmp_path / "out.txt").write_text("kept")
    result = world.run(replay_run_id=recorded.run_id, offline_agents=True)
    assert result.replay is not None
    assert result.replay.unrecorded_tasks == ("Touch",)
    assert (result.replay.first_difference, result.is_good) == ("", True)
    assert world.read("out.txt") == "kept"


WRAPPER_PLAN = """\
stages:
  - name: a
    steps:
      - title: Wrapped
        agent: {command: [sh, -c, '%s']}
"""
SIGNALS = (
    r"""printf "{\"kind\": \"compact_boundary\", """
    r'''\"detail\": {\"pre_tokens\": 5}}\nnoise\n" >> "$BERNSTEIN_SVC_PROVIDER_STATE_FILE"'''
)


def provider_rows(world: World, run_id: str) -> list[dict[str, JsonValue]]:
    rows = world.journal.rows(run_id)
    return [row for row in rows if str(row["event"]).startswith("provider_state_")][1:]


@pytest.mark.parametrize("seed", ["", "7"])
def test_what_a_wrapper_saw_its_provider_do_becomes_rows_before_the_agent_is_reaped(
    tmp_path: Path, seed: str
) -> None:
    world = World(tmp_path, WRAPPER_PLAN % SIGNALS)
    result = world.run(providers=(), seed=seed)
    (row,) = provider_rows(world, result.run_id)
    assert row["mutation_kind"] == "compact_boundary"
    assert (row["flagged"], row["step_index"]) == (bool(seed), 0)
    events = world.journal.events(result.run_id)
    at = events.index("provider_state_mutation")
    assert events[at - 1 : at + 2] == ["task_completed", "provider_state_mutation", "agent_reaped"]


def test_a_sidecar_begins_empty_with_each_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, WRAPPER_PLAN % f"{SIGNALS}; false")
    result = world.run(providers=(), max_retries=2)
    assert [row["step_index"] for row in provider_rows(world, result.run_id)] == [0, 0, 0]


@pytest.mark.parametrize(("seed", "count"), [("", 0), ("7", 1)])
def test_a_sidecar_that_is_gone_fails_a_deterministic_run(
    tmp_path: Path, seed: str, count: int
) -> None:
    world = World(tmp_path, WRAPPER_PLAN % 'rm "$BERNSTEIN_SVC_PROVIDER_STATE_FILE"')
    result = world.run(providers=(), seed=seed)
    rows = provider_rows(world, result.run_id)
    assert [row["event"] for row in rows] == ["provider_state_capture_failed"] * count
    assert [row["reason"] for row in rows] == ["FileNotFoundError"] * count


@pytest.mark.skipif(not is_possible(), reason="no way to take the network away here")
def test_a_replay_repeats_what_was_recorded_of_the_provider(tmp_path: Path) -> None:
    world = World(tmp_path, WRAPPER_PLAN % SIGNALS)
    recorded = world.run(providers=(), max_retries=1)
    result = world.run(replay_run_id=recorded.run_id, offline_agents=True)
    assert result.replay is not None
    assert result.replay.first_difference == ""
    assert result.head_hash_hex == recorded.head_hash_hex


def test_the_skill_of_a_role_is_shown_and_listed(world: World) -> None:
    folder = world.project / "templates" / "skills" / "qa"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: qa\n---\n\nTest everything.\n")
    prompts: list[str] = []

    def reply(lane: str, prompt: str) -> str:
        prompts.append(prompt)
        return helpful(lane, prompt)

    world.recorder.reply = reply
    result = world.run()
    assert "# Role\nTest everything." in prompts[-1]
    rows = world.journal.rows(result.run_id)
    assert rows[1]["extension_count"] == 1
    injected = [row["entries"] for row in rows if row["event"] == "skills.injected"]
    assert [len(each) for each in injected] == [0, 0, 0, 1]  # type: ignore[arg-type]  # lists
    assert world.run(replay_run_id=result.run_id).is_good


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    edges=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=6),
    failures=st.sets(st.tuples(st.integers(0, 5), st.integers(1, 3))),
    rooms=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_any_plan_replays_to_its_head_with_any_number_of_agents(
    edges: list[set[int]], failures: set[tuple[int, int]], rooms: tuple[int, int]
) -> None:
    stages = "".join(
        f"  - name: s{i}\n    depends_on: [{', '.join(f's{j}' for j in sorted(needed) if j < i)}]\n"
        f"    steps: [{{title: T{i}, files: [f{i}], completion_signals:"
        f" [{{type: file_contains, value: 'f{i} :: good'}}]}}]\n"
        for i, needed in enumerate(edges)
    )

    def reply(lane: str, prompt: str) -> str:
        title = int(prompt.partition("# Task\nT")[2][0])
        attempt = int(lane.rpartition("-")[2])
        good = "bad" if (title, attempt) in failures else "good"
        return f"{good} {token_hex(4)}"

    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), f"context_files: [f0, f1]\nstages:\n{stages}", reply)
        recorded = world.run(max_agents=rooms[0])
        assert rederive(world.journal.read_journal(recorded.run_id), recorded.run_id).ok
        replayed = world.run(replay_run_id=recorded.run_id, max_agents=rooms[1])
        assert replayed.replay is not None
        assert (replayed.replay.first_difference, replayed.is_good) == ("", True)
