"""Modes over real services: what the recorder lets cross, and an example agent in each of them."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from bernstein_client.recorder import Provider
from bernstein_determinism.chain import verify_chain_integrity
from bernstein_determinism.channels import append_reducer
from bernstein_determinism.observers import CONTINUE
from bernstein_determinism.ports import ModelSettings
from bernstein_determinism.prompts import PromptContribution
from bernstein_determinism.recorded_runtime import (
    AgentSetup,
    JournalLedger,
    record_run,
    replay_run,
)
from bernstein_determinism.reports import check_runs, replay_report
from bernstein_determinism.runtime import Runtime, replay_turn
from bernstein_determinism.turn_record import turns_of
from bernstein_formats import errors
from bernstein_formats.canonical import JsonValue
from bernstein_formats.modes import RuntimeMode, readable_modes
from bernstein_tour.model_server import MODEL, ModelServer

pytestmark = pytest.mark.processes
EXAMPLE = Path(__file__).parents[2] / "examples" / "determinism" / "agent.py"
LIVE = [mode for mode in RuntimeMode if not mode.is_hermetic]
NUMBERS = count()


@pytest.fixture
def server():
    with ModelServer() as started:
        yield started


@pytest.fixture
def recorder(services, server):
    """Sessions of the recorder, each in a run of its own."""
    return Recorder(services, server)


class Recorder:
    def __init__(self, services, server):
        self.services, self.server = services, server

    def open(self, mode, run_id="", **more):
        seed = 7 if mode is RuntimeMode.HEADLESS_EVAL else None
        self.run_id = run_id or f"run-{next(NUMBERS)}"
        providers = [Provider("openai", self.server.base_url, "unused")]
        return self.services.recorder.open_session(
            self.run_id, **{"providers": providers, "mode": mode, "seed": seed, **more}
        ).session_id

    def ask(self, session, prompt="draft", **more):
        settings = {"lane": "", "model": MODEL, "provider": "openai", "temperature": "0.7"}
        given = {**settings, "max_tokens": "4000", "call_class": "synthesize", **more}
        return self.services.recorder.call(session, prompt=prompt, **given)


# --- what may cross ---------------------------------------------------------------------------


@pytest.mark.parametrize("stored", LIVE)
def test_an_answer_is_given_to_the_modes_that_may_read_it_and_to_no_other(recorder, stored):
    for mode in RuntimeMode:
        prompt = f"for {mode}"
        kept = recorder.ask(recorder.open(stored, seed=7), prompt)
        session = recorder.open(mode, seed=7)
        if stored in readable_modes(mode):
            given = recorder.ask(session, prompt)
            assert (given.text, given.source, given.stored_mode) == (kept.text, "cached", stored)
        elif mode.is_hermetic:
            with pytest.raises(errors.ReplayDivergenceError):
                recorder.ask(session, prompt)
        else:
            own = recorder.ask(session, prompt)
            assert (own.source, own.stored_mode) == ("live", mode)
            assert own.text != kept.text


def test_a_read_from_another_mode_copies_nothing(recorder):
    recorder.ask(recorder.open(RuntimeMode.INTERACTIVE, seed=7))
    recorder.ask(recorder.open(RuntimeMode.HEADLESS_EVAL))
    answers = recorder.services.places.sdd_dir / "answers"
    assert [each.name for each in answers.iterdir()] == ["interactive.jsonl"]


def test_the_five_modes_give_five_fingerprints_and_a_session_none(recorder):
    made = {recorder.ask(recorder.open(mode, seed=7)).fingerprint for mode in LIVE}
    made.add(recorder.ask(recorder.open(RuntimeMode.HEADLESS_REPLAY, seed=7)).fingerprint)
    assert len(made) == 5
    assert recorder.ask(recorder.open(None)).fingerprint == ""


def test_a_miss_in_headless_replay_names_the_nearest_and_the_field_and_asks_nobody(recorder):
    near = recorder.ask(recorder.open(RuntimeMode.INTERACTIVE))
    recorder.ask(recorder.open(RuntimeMode.INTERACTIVE), prompt="quite another", call_class="judge")
    calls = recorder.server.calls
    session = recorder.open(RuntimeMode.HEADLESS_REPLAY)
    with pytest.raises(errors.ReplayDivergenceError) as caught:
        recorder.ask(session, temperature="0.9")
    facts = caught.value.metadata
    assert facts["kind"] == "miss"
    assert facts["fingerprint"].startswith("v1:")
    assert facts["nearest"] == near.fingerprint
    assert facts["differing_fields"] == "temperature"
    assert "temperature (stored '0.70', asked '0.90')" in caught.value.message
    assert "draft" not in caught.value.message
    assert recorder.server.calls == calls
    assert not (recorder.services.places.sdd_dir / "runs" / recorder.run_id).exists()


def test_temperatures_of_one_bucket_share_an_answer(recorder):
    session = recorder.open(RuntimeMode.INTERACTIVE)
    first = recorder.ask(session, temperature="0.7")
    second = recorder.ask(session, temperature="0.71")
    assert (second.text, second.source) == (first.text, "cached")
    assert second.key != first.key


@pytest.mark.parametrize(
    ("mode", "more", "error"),
    [
        (RuntimeMode.HEADLESS_EVAL, {"seed": None}, errors.SeedRequiredError),
        (RuntimeMode.HEADLESS_REPLAY, {"allow_live_miss": True}, errors.CacheModeError),
    ],
)
def test_a_session_against_its_mode_is_refused(recorder, mode, more, error):
    with pytest.raises(error):
        recorder.open(mode, **more)


def test_a_pinned_seed_goes_into_every_call_and_no_other_gets_in(recorder):
    session = recorder.open(RuntimeMode.HEADLESS_EVAL)
    recorder.ask(session)
    with pytest.raises(errors.InvalidInput, match="seed is 7"):
        recorder.ask(session, parameters={"seed": 8})
    path = recorder.services.places.sdd_dir / "runs" / recorder.run_id / "llm_calls.jsonl"
    assert json.loads(path.read_bytes())["parameters"] == {"seed": 7}


def test_who_or_when_in_a_call_is_refused_before_a_model_is_asked(recorder):
    session = recorder.open(RuntimeMode.INTERACTIVE)
    with pytest.raises(errors.IdentityFieldError, match="/parameters/request_id"):
        recorder.ask(session, parameters={"request_id": "x"})
    assert recorder.server.calls == 0


# --- ways around that there are not -----------------------------------------------------------


def recorded_as(recorder, mode):
    session = recorder.open(mode)
    recorder.ask(session)
    recorder.services.recorder.close_session(session)
    return recorder.run_id


@pytest.mark.parametrize("mode", [RuntimeMode.INTERACTIVE, RuntimeMode.HEADLESS_JOB])
def test_a_recording_is_not_replayed_against_the_direction(recorder, mode):
    run_id = recorded_as(recorder, RuntimeMode.HEADLESS_EVAL)
    with pytest.raises(errors.CacheModeError, match="recorded as headless-eval"):
        recorder.open(mode, replay_run_id=run_id)


@pytest.mark.parametrize("mode", LIVE)
def test_a_session_without_a_mode_carries_answers_of_a_mode_nowhere(recorder, mode):
    run_id = recorded_as(recorder, mode)
    with pytest.raises(errors.CacheModeError, match=f"recorded as {mode}"):
        recorder.open(None, replay_run_id=run_id, allow_live_miss=True)
    others = [None, *(each for each in LIVE if each is not mode)]
    for other in others:
        with pytest.raises(errors.CacheModeError, match=f"calls .*of {mode}"):
            recorder.open(other, run_id)


@pytest.mark.parametrize("mode", LIVE)
def test_calls_without_a_mode_answer_no_session_that_has_one_and_stores(recorder, mode):
    run_id = recorded_as(recorder, None)
    with pytest.raises(errors.CacheModeError, match="recorded without a mode"):
        recorder.open(mode, replay_run_id=run_id, seed=7)
    again = recorder.open(None, replay_run_id=run_id, allow_live_miss=True)
    assert recorder.ask(again).source == "recorded"
    strict = recorder.open(RuntimeMode.HEADLESS_REPLAY, replay_run_id=run_id)
    assert recorder.ask(strict).source == "recorded"


def recording_bytes(recorder, run_id):
    return (recorder.services.places.sdd_dir / "runs" / run_id / "llm_calls.jsonl").read_bytes()


def test_each_recorded_call_is_checked_when_it_is_given_whoever_wrote_the_file(recorder):
    """A recording that no recorder made: the first call is interactive, the second is not."""
    first = recording_bytes(recorder, recorded_as(recorder, RuntimeMode.INTERACTIVE))
    job = recorder.open(RuntimeMode.HEADLESS_JOB)
    recorder.ask(job, "secret of the job")
    second = recording_bytes(recorder, recorder.run_id)
    mixed = recorder.services.places.sdd_dir / "runs" / "mixed" / "llm_calls.jsonl"
    mixed.parent.mkdir()
    mixed.write_bytes(first + second)
    recorder.services.recorder.close_session(job)
    reading = recorder.open(RuntimeMode.INTERACTIVE, replay_run_id="mixed")
    assert recorder.ask(reading).source == "recorded"
    with pytest.raises(errors.CacheModeError, match="line 2: recorded as headless-job"):
        recorder.ask(reading, "secret of the job")
    unmarked = recorder.services.places.sdd_dir / "runs" / "other" / "llm_calls.jsonl"
    unmarked.parent.mkdir()
    plain = recording_bytes(recorder, recorded_as(recorder, None))
    unmarked.write_bytes(plain + second.replace(b'"headless-job"', b'"turbo"', 1) + second)
    reading = recorder.open(None, replay_run_id="other", allow_live_miss=True)
    with pytest.raises(errors.RowMalformed, match="line 2"):
        recorder.ask(reading, "secret of the job")
    with pytest.raises(errors.CacheModeError, match="line 3: recorded as headless-job"):
        recorder.ask(reading, "secret of the job")


@pytest.mark.parametrize("first", [None, *LIVE])
def test_stored_calls_are_appended_only_where_calls_of_their_mode_are(recorder, first):
    append = recorder.services.recorder.append_calls
    stored = {
        mode: recording_bytes(recorder, recorded_as(recorder, mode)) for mode in [None, *LIVE]
    }
    run_id = f"import-{first}"
    size = append(run_id, 0, stored[first])
    assert append(run_id, 0, stored[first]) == size
    for mode, data in stored.items():
        if mode is not first:
            with pytest.raises(errors.CacheModeError, match="would hold calls"):
                append(run_id, size, data)
            with pytest.raises(errors.CacheModeError, match="would hold calls"):
                append(run_id, size, data.rstrip(b"\n"))
    assert recording_bytes(recorder, run_id) == stored[first]
    claimed = recorder.open(first, f"claimed-{first}")
    other = next(mode for mode in stored if mode is not first)
    with pytest.raises(errors.CacheModeError, match="would hold calls"):
        append(f"claimed-{first}", 0, stored[other])
    recorder.services.recorder.close_session(claimed)


def test_no_calls_of_headless_replay_are_stored_by_anybody(recorder):
    data = recording_bytes(recorder, recorded_as(recorder, RuntimeMode.INTERACTIVE))
    marked = data.replace(b'"mode": "interactive"', b'"mode": "headless-replay"')
    assert marked != data
    with pytest.raises(errors.CacheModeError, match="stored nowhere"):
        recorder.services.recorder.append_calls("import", 0, marked)


def test_two_providers_of_one_name_share_no_answers(recorder):
    first = recorder.ask(recorder.open(RuntimeMode.INTERACTIVE))
    with ModelServer() as elsewhere:
        providers = [Provider("openai", elsewhere.base_url, "unused")]
        session = recorder.open(RuntimeMode.INTERACTIVE, providers=providers)
        assert recorder.ask(session).source == "live"
        assert recorder.ask(session).source == "cached"
        assert elsewhere.calls == 1
    again = recorder.ask(recorder.open(RuntimeMode.INTERACTIVE))
    assert (again.text, again.source) == (first.text, "cached")
    with pytest.raises(errors.ReplayDivergenceError) as caught:  # which of the two?
        recorder.ask(recorder.open(RuntimeMode.HEADLESS_REPLAY, providers=[]))
    assert caught.value.metadata["differing_fields"] == "address"
    assert recorder.ask(recorder.open(RuntimeMode.HEADLESS_REPLAY)).text == first.text
    nowhere = [Provider("openai", "http://127.0.0.1:1", "unused")]
    with pytest.raises(errors.ReplayDivergenceError, match="differs in address"):
        recorder.ask(recorder.open(RuntimeMode.HEADLESS_REPLAY, providers=nowhere))
    answers = recorder.services.places.sdd_dir / "answers" / "interactive.jsonl"
    assert b"127.0.0.1" not in answers.read_bytes()


def test_a_strict_replay_without_a_mode_is_checked_by_key_alone(recorder):
    run_id = recorded_as(recorder, RuntimeMode.HEADLESS_EVAL)
    strict = recorder.open(None, replay_run_id=run_id, seed=None)
    with pytest.raises(errors.ReplayMissError):  # without the seed it is another call
        recorder.ask(strict)


def test_two_modes_that_open_one_fresh_run_at_once_do_not_share_it(recorder):
    run_id = f"run-{next(NUMBERS)}"

    def opened(mode):
        try:
            return recorder.open(mode, run_id)
        except errors.CacheModeError:
            return None

    with ThreadPoolExecutor(8) as pool:
        modes = [RuntimeMode.INTERACTIVE, RuntimeMode.HEADLESS_JOB] * 4
        sessions = list(pool.map(opened, modes))
    taken = {mode for mode, session in zip(modes, sessions, strict=True) if session}
    assert len(taken) == 1


def test_any_recording_is_replayed_in_headless_replay_with_its_own_seed(recorder):
    for mode in LIVE:
        run_id = recorded_as(recorder, mode)
        calls = recorder.server.calls
        session = recorder.open(RuntimeMode.HEADLESS_REPLAY, replay_run_id=run_id)
        given = recorder.ask(session)
        assert (given.source, given.stored_mode) == ("recorded", mode)
        with pytest.raises(errors.ReplayMissError) as caught:
            recorder.ask(session)
        assert caught.value.metadata["kind"] == "used_up"
        assert caught.value.metadata["fingerprint"] == given.fingerprint
        assert isinstance(caught.value, errors.ReplayDivergenceError)
        assert recorder.server.calls == calls


def test_a_recorded_call_for_another_purpose_or_version_is_told(recorder):
    run_id = recorded_as(recorder, RuntimeMode.INTERACTIVE)
    session = recorder.open(RuntimeMode.HEADLESS_REPLAY, replay_run_id=run_id)
    with pytest.raises(errors.ReplayDivergenceError) as caught:
        recorder.ask(session, call_class="judge")
    assert caught.value.metadata["differing_fields"] == "call_class"
    newer = recorder.open(RuntimeMode.HEADLESS_REPLAY, replay_run_id=run_id, agent_version="2")
    with pytest.raises(errors.ReplayDivergenceError, match="version") as caught:
        recorder.ask(newer)
    assert caught.value.metadata["kind"] == "version"


def test_a_live_answer_that_a_recording_lacked_has_its_fingerprint(recorder):
    run_id = recorded_as(recorder, RuntimeMode.INTERACTIVE)
    mode = RuntimeMode.INTERACTIVE
    session = recorder.open(mode, replay_run_id=run_id, allow_live_miss=True)
    given = recorder.ask(session, "another")
    assert (given.source, given.stored_mode) == ("live", mode)
    row = json.loads(recording_bytes(recorder, recorder.run_id))
    assert given.fingerprint == row["fingerprint"] != ""


@pytest.mark.parametrize("without", [("fingerprint",), ("fingerprint", "facts")])
def test_a_call_that_was_given_another_mode_by_hand_answers_no_session_with_a_mode(
    recorder, without
):
    row = json.loads(recording_bytes(recorder, recorded_as(recorder, RuntimeMode.HEADLESS_JOB)))
    edited = {name: each for name, each in row.items() if name not in without}
    edited["mode"] = "interactive"
    data = json.dumps(edited).encode() + b"\n"
    recorder.services.recorder.append_calls(f"edited-{len(without)}", 0, data)
    reading = recorder.open(RuntimeMode.INTERACTIVE, replay_run_id=f"edited-{len(without)}")
    with pytest.raises(errors.RowMalformed, match="no fingerprint"):
        recorder.ask(reading)


def test_kept_answers_outlive_a_recorder_that_was_killed(recorder, project, server):
    kept = recorder.ask(recorder.open(RuntimeMode.INTERACTIVE))
    (pid,) = (
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdecimal() and is_recorder_of(each, project.sdd)
    )
    os.kill(pid, signal.SIGKILL)
    with (project.sdd / "answers" / "interactive.jsonl").open("ab") as file:
        file.write(b'{"fingerprint": "v1:torn')  # as a crash leaves it
    with project.services() as services:
        again = Recorder(services, server)
        given = again.ask(again.open(RuntimeMode.HEADLESS_REPLAY))
        assert (given.text, given.source) == (kept.text, "cached")
        new = again.ask(again.open(RuntimeMode.INTERACTIVE), prompt="another")
        assert again.ask(again.open(RuntimeMode.HEADLESS_REPLAY), prompt="another").text == new.text


def is_recorder_of(process: Path, sdd_dir: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"bernstein_recorder" in words and str(sdd_dir).encode() in words


# --- an agent ---------------------------------------------------------------------------------


class Quiet:
    name = "quiet"

    def on_chunk(self, chunk):
        return CONTINUE


def setup(**more):
    given = {"model": ModelSettings(MODEL, "openai"), "channels": {"notes": append_reducer}}
    return AgentSetup(**{**given, "observers": (Quiet,), **more})


def agent(turn):
    def ask(node):
        parts = [PromptContribution("p", 0, 0, f"{node.name} on {turn.input}", required=True)]
        node.write("notes", node.ask(parts))

    turn.step({f"node-{number}": ask for number in range(6)})
    turn.step({"last": ask})


def record(services, server, mode, seed=None):
    providers = [Provider("openai", server.base_url, "unused")]
    with record_run(services, setup(), mode, seed=seed, providers=providers) as made:
        for text in ("teapots", "kettles"):
            made.runtime.take_turn(agent, text)
    return made.run_id


@pytest.mark.parametrize("mode", LIVE)
def test_turns_of_each_mode_are_replayed_in_every_link_without_a_model(services, server, mode):
    run_id = record(services, server, mode, seed=7)
    calls = server.calls
    assert calls == 14
    originals = turns_of(services.journal.read_journal(run_id))
    with replay_run(services, setup(), run_id) as made:
        results = [replay_turn(each, agent, made.runtime) for each in originals]
    assert all(each.ok for each in results)
    assert server.calls == calls
    assert services.journal.verify_run(made.run_id).identity == "verified"
    replayed = services.journal.read_journal(made.run_id)
    assert verify_chain_integrity(replayed, originals=originals).ok
    reports = [
        replay_report(each, services.journal.read_journal(each)) for each in (run_id, made.run_id)
    ]
    assert check_runs(*reports).ok


def test_headless_replay_takes_new_turns_from_what_is_stored_or_not_at_all(services, server):
    record(services, server, RuntimeMode.HEADLESS_EVAL, seed=7)
    calls = server.calls
    with record_run(services, setup(), RuntimeMode.HEADLESS_REPLAY, seed=7) as made:
        row = made.runtime.take_turn(agent, "kettles", turn_id="other")
        assert {each.source for each in row.asks()} == {"cached"}
        assert {each.stored_mode for each in row.asks()} == {"headless-eval"}
        with pytest.raises(errors.ReplayDivergenceError, match="nothing is stored"):
            made.runtime.take_turn(agent, "cups", turn_id="unknown")
    assert server.calls == calls


def test_system_texts_tools_and_seeds_among_the_parameters_have_one_fingerprint(services, server):
    """The library makes the fingerprint that the recorder makes; the runtime compares them."""
    tool: JsonValue = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}},
    }
    parameters: dict[str, JsonValue] = {
        "system": "You write.",
        "tools": [tool],
        "seed": 3,
        "top_p": 0.5,
    }
    model = ModelSettings(MODEL, "openai", parameters=parameters)

    def asking(turn):
        parts = [PromptContribution("p", 0, 0, "tea", required=True)]
        turn.step({"node": lambda node: node.write("notes", node.ask(parts, model=model))})
        turn.step({"other": lambda node: node.write("notes", node.ask(parts))})

    providers = [Provider("openai", server.base_url, "unused")]
    with record_run(services, setup(), providers=providers) as made:
        row = made.runtime.take_turn(asking, "tea")
    assert {"tools", "seed", "parameters"} <= set(next(row.asks()).components)
    with replay_run(services, setup(), made.run_id) as again:
        assert replay_turn(row, asking, again.runtime).ok


def test_another_version_of_the_agent_is_told_before_it_runs(services, server):
    run_id = record(services, server, RuntimeMode.INTERACTIVE)
    (turn, _) = turns_of(services.journal.read_journal(run_id))
    with (
        pytest.raises(errors.ReplayDivergenceError, match="version"),
        replay_run(services, setup(version="2"), run_id) as made,
    ):
        replay_turn(turn, agent, made.runtime)


def test_a_run_without_turns_is_not_replayed(services):
    run_id = services.journal.create_run("plain")
    services.journal.append(run_id, "x", {})
    with (
        pytest.raises(errors.InvalidInput, match="no run of recorded turns"),
        replay_run(services, setup(), run_id),
    ):
        pass


# --- the command ------------------------------------------------------------------------------


def bernstein(project, *argv, **variables):
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *map(str, argv)],
        cwd=project.folder,
        env={**project.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def example(project, server, mode):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), mode],
        cwd=project.folder,
        env={**project.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "unused"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_example_is_recorded_replayed_checked_and_signed_from_the_command_line(project, server):
    first = example(project, server, "interactive")
    job = example(project, server, "headless-job")
    evaluated = example(project, server, "headless-eval")
    coding = example(project, server, "coding-agent")
    stored = example(project, server, "headless-replay")
    calls = server.calls

    def answer(code, *argv):
        done = bernstein(project, "determinism", *argv, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout)

    replayed = {"run_id": ""}
    for run in (first, job, evaluated, coding, stored):
        replayed = answer(0, "replay-turn", run, "--agent", EXAMPLE)
        assert [each["provider_calls"] for each in replayed["turns"]] == [0, 0]
        assert answer(0, "check", run, replayed["run_id"])["slips"] == []
        assert answer(0, "verify", replayed["run_id"])["identity"] == "verified"
    for run in (replayed["run_id"], answer(0, "replay-turn", job, "--agent", EXAMPLE)["run_id"]):
        again = answer(0, "replay-turn", run, "--agent", EXAMPLE)  # a replay of a replay
        assert answer(0, "verify", again["run_id"])["ok"]
    assert answer(0, "check", evaluated, stored)["turn_count"] == 2
    slips = answer(1, "check", first, job)["slips"]
    assert {each["kind"] for each in slips} == {"chunks"}
    assert answer(1, "diff", first, job)["reason_code"] == "chunk_mismatch"
    assert answer(0, "diff", first, first)["diverged"] is False
    assert answer(0, "compare", first, evaluated)["ok"]
    assert answer(1, "replay-turn", first, "no-such-turn", "--agent", EXAMPLE)["error"]
    assert server.calls == calls

    bernstein(project, "keys", "new", "op.pem")
    signed = bernstein(project, "verify", "run", first, "--signing-key-path", "op.pem", "--json")
    receipt = Path(json.loads(signed.stdout)["receipt_path"])
    assert bernstein(project, "verify", "receipt", receipt).returncode == 0
    receipt.write_bytes(
        receipt.read_bytes().replace(b"fingerprint_composite", b"Fingerprint_composite", 1)
    )
    assert bernstein(project, "verify", "receipt", receipt).returncode != 0


def test_the_tables_are_for_people_and_the_verdict_is_the_exit_code(project, server):
    first = example(project, server, "interactive")
    job = example(project, server, "headless-job")
    shown = bernstein(project, "determinism", "check", first, job, "--offline")
    assert shown.returncode == 1
    assert "CONTRACT" in shown.stdout
    assert "the provider is not deterministic" in shown.stdout
    for verb in (["verify", first], ["compare", first, job], ["diff", first, first]):
        done = bernstein(project, "determinism", *verb, "--offline")
        assert (done.returncode, done.stderr) == (0, "")


class Moody:
    """Reads a global: what it makes of the same writes changes from run to run."""

    mood = 0

    def __getattr__(self, name):
        return getattr(append_reducer, name)

    def view(self, state):
        return [type(self).mood, append_reducer.view(state)]


class Backwards:
    """Ids of a clock that was set back."""

    def __init__(self):
        self.left = ["01HF7YAT000000000000000001", "01HF7YAT000000000000000000"]

    def new(self):
        return self.left.pop(0)


def broken_agent(look, *, parameters=dict):
    """An agent that looks at what it should not."""

    def run(turn):
        def ask(node):
            parts = [PromptContribution("static", 0, 0, f"You write. {look()}", required=True)]
            model = ModelSettings(MODEL, "openai", parameters=parameters())
            node.write("notes", node.ask(parts, model=model))

        turn.step({"node": ask})

    return run


def test_check_names_the_contract_of_each_row_of_the_table_of_symptoms(project, services, server):
    numbers = iter(range(9))
    providers = [Provider("openai", server.base_url, "unused")]

    def recorded(agent, mode=RuntimeMode.INTERACTIVE, ids=None, notes=append_reducer):
        made_setup = setup(channels={"notes": notes})
        with record_run(services, made_setup, mode, providers=providers) as made:
            runtime = made.runtime
            if ids is not None:
                runtime = Runtime(runtime.around, JournalLedger(services, made.run_id), ids)
            for name in ("first", "second"):
                runtime.take_turn(agent, "tea", turn_id=name)
        Moody.mood += 1
        return made.run_id

    plain = broken_agent(str)
    counting = broken_agent(lambda: next(numbers))
    identified = broken_agent(str, parameters=lambda: {"metadata": {"call": str(next(numbers))}})
    pairs = {
        ("prompt", 1, "static contribution"): (recorded(counting), recorded(counting)),
        ("fingerprint", 2, "identity-like field"): (recorded(identified), recorded(identified)),
        ("chunks", None, "not deterministic, or no seed"): (
            recorded(plain),
            recorded(plain, RuntimeMode.HEADLESS_JOB),
        ),
        ("channel", 4, "does not commute"): (
            recorded(plain, notes=Moody()),
            recorded(plain, notes=Moody()),
        ),
        ("order", 5, "ids are made from the clock"): (
            recorded(plain),
            recorded(plain, ids=Backwards()),
        ),
    }
    for (kind, contract, cause), (a, b) in pairs.items():
        done = bernstein(project, "determinism", "check", a, b, "--json")
        slips = json.loads(done.stdout)["slips"]
        assert (done.returncode, {each["kind"] for each in slips}) == (1, {kind})
        assert {each["contract"] for each in slips} == {contract}
        assert cause in slips[0]["cause"]
        shown = bernstein(project, "determinism", "check", a, b, "--offline").stdout
        assert cause in shown


@pytest.mark.parametrize("verb", [["check", "a", "b"], ["verify", "a"], ["compare", "a", "b"]])
def test_a_run_that_is_not_there_is_one_line(project, verb):
    done = bernstein(project, "determinism", *verb, "--offline")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "[RUN_NOT_FOUND]" in done.stderr


def test_a_turn_that_went_on_after_a_failed_model_call_is_replayed(services, server):
    broken = ModelSettings(model=MODEL, provider="anthropic")

    def agent(turn):
        def node(node):
            task = [PromptContribution("task", 0, 0, "Name a teapot.", required=True)]
            for model in (None, broken):
                try:
                    node.write("notes", node.ask(task, model=model))
                except errors.ProviderFailed as error:
                    node.write("notes", [error.message, error.metadata])

        turn.step({"n": node})

    setup = AgentSetup(ModelSettings(model=MODEL, provider="openai"), {"notes": append_reducer})
    providers = [
        Provider("openai", server.base_url, "unused"),
        Provider("anthropic", server.base_url, "unused"),
    ]
    with record_run(services, setup, providers=providers) as made:
        taken = made.runtime.take_turn(agent, "tea")
    with replay_run(services, setup, made.run_id) as again:
        result = replay_turn(taken, agent, again.runtime)

    assert "404" in str(taken.views["notes"])
    assert result.ok
    assert result.row.content_sha256() == taken.content_sha256()
