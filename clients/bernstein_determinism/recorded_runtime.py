"""A runtime over the services: the recorder answers, the journal keeps the audit rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bernstein_client.connection import Services
from bernstein_client.recorder import Provider, Recording
from bernstein_client.values import RunInfo
from bernstein_determinism.channels import Reducer
from bernstein_determinism.ids import UlidFactory
from bernstein_determinism.observers import ObserverFactory, Observers
from bernstein_determinism.ports import Answered, ModelSettings, Question
from bernstein_determinism.runtime import Runtime
from bernstein_determinism.surroundings import Surroundings
from bernstein_determinism.turn_record import SESSION_EVENT
from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_formats.fingerprint import version_of
from bernstein_formats.journal_reader import accepted_rows
from bernstein_formats.modes import RuntimeMode
from bernstein_runtime import VERSION


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What an agent runs with, recorded or replayed."""

    model: ModelSettings
    channels: Mapping[str, Reducer[Any]]
    observers: Sequence[ObserverFactory] = ()
    # The agent's own version; part of every fingerprint.
    version: str = ""


class RecorderAnswers:
    """Model calls through a session of the recorder."""

    def __init__(
        self, services: Services, session_id: str, mode: RuntimeMode, seed: int | None
    ) -> None:
        self.seed = seed
        self._recorder = services.recorder
        self._session_id = session_id
        self.mode = mode

    def ask(self, question: Question) -> Answered:
        settings = question.settings
        answer = self._recorder.call(
            self._session_id,
            lane=question.lane,
            model=settings.model,
            provider=settings.provider,
            prompt=question.prompt,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            parameters=settings.parameters,
            call_class=question.call_class,
            family=settings.family,
        )
        stored = answer.stored_mode or self.mode
        return Answered(answer.text, answer.source, stored, answer.fingerprint, answer.key)


class JournalLedger:
    """Audit rows as events of a run: chained, sealed, and part of its receipt."""

    def __init__(self, services: Services, run_id: str) -> None:
        self._journal = services.journal
        self._run_id = run_id

    def append(self, event: str, payload: Mapping[str, JsonValue]) -> None:
        self._journal.append(self._run_id, event, payload)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run that is being made, and the runtime that makes it."""

    run_id: str
    runtime: Runtime


@contextmanager
def record_run(
    services: Services,
    setup: AgentSetup,
    mode: RuntimeMode = RuntimeMode.INTERACTIVE,
    *,
    seed: int | None = None,
    providers: Sequence[Provider] = (),
    run_id: str = "",
) -> Iterator[Recorded]:
    """Make a run of turns; it is sealed when the block ends in order.

    In headless-replay the turns are answered from what interactive and headless-eval stored, and a
    miss raises ReplayDivergenceError. Raises SeedRequiredError, CacheModeError.
    """
    run_id = services.journal.create_run(run_id)
    session = services.recorder.open_session(
        run_id, providers=providers, mode=mode, seed=seed, agent_version=setup.version
    )
    answers = RecorderAnswers(services, session.session_id, mode, seed)
    runtime = _runtime(services, setup, run_id, answers)
    runtime.begin({})
    try:
        yield Recorded(run_id, runtime)
        _end(services, run_id, session.session_id, has_recording=not mode.is_hermetic)
    finally:
        services.recorder.close_session(session.session_id)  # the same account, asked again


@contextmanager
def replay_run(
    services: Services, setup: AgentSetup, recorded_run_id: str, *, run_id: str = ""
) -> Iterator[Recorded]:
    """Make a run that replays turns of another one in headless-replay, from its recording.

    A run of headless-replay, which has none, is answered from what it was answered from: the
    recording at the beginning of its replays, or what is stored. Raises
    ReplayRecordingMissingError, RecordingChanged.
    """
    info = services.journal.get_run(recorded_run_id)
    seed, source = _answered_from(services, info)
    replay = spelled({"replay_of": info.run_id}).encode()
    run_id = services.journal.create_run(run_id, replay=replay)
    mode = RuntimeMode.HEADLESS_REPLAY
    session = services.recorder.open_session(
        run_id,
        replay_run_id=source.run_id if source else "",
        expected=source.recording if source else None,
        mode=mode,
        seed=seed,
        agent_version=setup.version,
    )
    answers = RecorderAnswers(services, session.session_id, mode, seed)
    runtime = _runtime(services, setup, run_id, answers)
    runtime.begin({"replay_of": info.run_id})
    try:
        yield Recorded(run_id, runtime)
        _end(services, run_id, session.session_id, has_recording=False)
    finally:
        services.recorder.close_session(session.session_id)


@dataclass(frozen=True, slots=True)
class _SessionFacts:
    run_id: str
    mode: str
    seed: int | None
    replay_of: str
    recording: Recording | None


def _runtime(
    services: Services, setup: AgentSetup, run_id: str, answers: RecorderAnswers
) -> Runtime:
    around = Surroundings(
        answers=answers,
        mode=answers.mode,
        version=version_of(VERSION, setup.version),
        model=setup.model,
        channels=setup.channels,
        observers=Observers(setup.observers),
    )
    return Runtime(around, JournalLedger(services, run_id), UlidFactory.system())


def _end(services: Services, run_id: str, session_id: str, *, has_recording: bool) -> None:
    recording = services.recorder.close_session(session_id).recording
    if has_recording and recording is not None:
        services.journal.append_many(run_id, [recording.event()])
    services.journal.finish_run(run_id)


def _answered_from(services: Services, info: RunInfo) -> tuple[int | None, _SessionFacts | None]:
    """A run's seed, and the run whose recording it was made from; None: from what is stored."""
    facts = _session_facts(services, info.run_id)
    seed, seen = facts.seed, {facts.run_id}
    while facts.replay_of and facts.replay_of not in seen:
        facts = _session_facts(services, facts.replay_of)
        seen.add(facts.run_id)
    return seed, None if facts.mode == RuntimeMode.HEADLESS_REPLAY.value else facts


def _session_facts(services: Services, run_id: str) -> _SessionFacts:
    """What a run says of its mode, its seed, its source and its recording."""
    begun: Mapping[str, JsonValue] | None = None
    recording: Recording | None = None
    for _, row in accepted_rows(services.journal.read_journal(run_id)):
        if row.get("event") == SESSION_EVENT:
            begun = dict(row)
        elif row.get("event") == "llm_recording":
            recording = _recording(row)
    if begun is None:
        raise InvalidInput(
            f"run {run_id} has no {SESSION_EVENT} row: it is no run of recorded turns",
            run_id=run_id,
        )
    seed = begun.get("seed")
    return _SessionFacts(
        run_id=run_id,
        mode=str(begun.get("mode")),
        seed=seed if type(seed) is int else None,
        replay_of=str(begun.get("replay_of") or ""),
        recording=recording,
    )


def _recording(row: Mapping[str, JsonValue]) -> Recording:
    match row:
        case {"call_count": int() as count, "size_bytes": int() as size, "sha256": str() as digest}:
            return Recording(count, size, digest)
    raise BernsteinError("the llm_recording row is malformed; verify the run")
