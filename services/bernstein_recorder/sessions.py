"""Sessions: opened and closed by request, answering calls in between.

A session lives in memory. A replay's position is lost with the process, so that a replay must be
started again; a session that records goes on where its file is.
"""

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    BernsteinError,
    Conflict,
    InvalidInput,
    SessionLost,
    TooMany,
)
from bernstein_formats.fingerprint import version_of
from bernstein_formats.llm_calls import Caller, CallRequest, parameters_digest
from bernstein_formats.llm_replay import Replay
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.paths import check_run_id
from bernstein_recorder.answering import Account, Answering, LiveAnswers, ReplayAnswers, Served
from bernstein_recorder.dialect import Provider
from bernstein_recorder.gate import Gate
from bernstein_recorder.kept_answers import KeptAnswers
from bernstein_recorder.moded import (
    ModedAnswers,
    ReplayedMarks,
    Scope,
    check_direction,
    check_session,
    seed_of_row,
)
from bernstein_recorder.once import Once
from bernstein_recorder.providers import Providers, Settings, checked
from bernstein_recorder.recorded_runs import RecordedRuns
from bernstein_recorder.recording import Recording, Summary
from bernstein_recorder.recordings import Recordings
from bernstein_runtime import VERSION
from bernstein_runtime.clock import Clock

USED_LATELY_SECONDS = 3600.0
SESSIONS_MAX = 1024
CLOSED_REMEMBERED_MAX = 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session is opened for. The same request id must want the same."""

    run_id: str
    replay_run_id: str = ""
    allow_live_miss: bool = False
    record: bool = True
    providers: tuple[Provider, ...] = ()
    expected: Summary | None = None
    mode: RuntimeMode | None = None
    seed: int | None = None
    agent_version: str = ""

    @property
    def kind(self) -> str:
        if self.replay_run_id:
            return "replay"
        return "record" if self.record else "dial"

    @property
    def records(self) -> bool:
        """A strict replay makes nothing that the replayed run does not have."""
        if self.mode is not None and self.mode.is_hermetic:
            return False
        return self.record and (not self.replay_run_id or self.allow_live_miss)

    @property
    def policy_mode(self) -> RuntimeMode | None:
        """The mode whose rules hold: a strict replay without a mode is one of headless-replay."""
        is_strict = bool(self.replay_run_id) and not self.allow_live_miss
        return RuntimeMode.HEADLESS_REPLAY if self.mode is None and is_strict else self.mode


@dataclass(frozen=True, slots=True)
class Opened:
    """A session's id, and the recording that it answers from, if any."""

    session_id: str
    replayed: Summary | None


@dataclass(slots=True)
class Session:
    """An open session."""

    wanted: Wanted
    answering: Answering
    gate: Gate
    used_at: float
    calls: Once[Served] = field(default_factory=lambda: Once(Served.size))


class Sessions:
    """All sessions of this process. Thread-safe."""

    def __init__(
        self,
        recorded: RecordedRuns,
        recordings: Recordings,
        providers: Providers,
        kept: KeptAnswers,
        clock: Clock,
    ) -> None:
        self._recorded = recorded
        self._kept = kept
        self._recordings = recordings
        self._providers = providers
        self._clock = clock
        self._lock = threading.Lock()
        self._opening: Once[Opened] = Once(lambda _: 0)
        self._open: dict[str, Session] = {}
        self._closed: OrderedDict[str, Account] = OrderedDict()

    def open(self, request_id: str, wanted: Wanted) -> Opened:
        """The session of this request id, opened if it is new.

        Raises InvalidInput, ReplayRecordingMissingError, RecordingChanged, TooMany, and for a
        session that records whatever opening the file raises.
        """
        wanted_text = repr(wanted) + "".join(each.api_key for each in wanted.providers)
        return self._opening.run(request_id, wanted_text, lambda: self._made(wanted))

    def call(self, session_id: str, call: CallRequest, caller: Caller) -> Served:
        """One answer. Raises SessionLost, ReplayMissError, ProviderFailed, DiskFull and others."""
        session = self._session(session_id)
        asked = f"{call.key()} {parameters_digest(call.parameters)} {caller.lane} {caller.about}"
        try:
            return session.calls.run(
                caller.request_id, asked, lambda: session.answering.answer(call, caller)
            )
        finally:
            session.used_at = self._clock.monotonic_seconds()

    def close(self, session_id: str) -> Account:
        """End a session; asking again gives the same account."""
        with self._lock:
            if session_id in self._closed:
                return self._closed[session_id]
        ending = self._session(session_id)
        ending.gate.shut()
        account = ending.answering.account()
        with self._lock:
            session = self._open.pop(session_id, None)
            if session is None:
                return self._closed[session_id]
            self._closed[session_id] = account
            while len(self._closed) > CLOSED_REMEMBERED_MAX:
                self._closed.popitem(last=False)
        self._let_go(session)
        return account

    def recording_of(self, run_id: str) -> Summary:
        """Count, size and digest of a run's recording: what is acknowledged, else its bytes."""
        open_now = self._recordings.find(run_id)
        if open_now is not None:
            return open_now.summary()
        return self._recorded.summary(run_id)

    def append_verbatim(
        self, run_id: str, data: bytes, start_offset: int, prefix_sha256: bytes | None
    ) -> int:
        """Append stored calls; gives the size of the file."""
        recording = self._recordings.take(run_id)
        try:
            return recording.append_verbatim(data, start_offset, prefix_sha256)
        finally:
            self._recordings.release(run_id)

    def busy(self) -> bool:
        """Whether somebody may come back for a session."""
        since = self._clock.monotonic_seconds() - USED_LATELY_SECONDS
        with self._lock:
            return any(session.used_at >= since for session in self._open.values())

    def finish(self) -> None:
        """Let go of everything."""
        self._recordings.close()
        self._kept.close()
        self._providers.close()

    def _made(self, wanted: Wanted) -> Opened:
        check_run_id(wanted.run_id)
        check_session(wanted.mode, seed=wanted.seed, allow_live_miss=wanted.allow_live_miss)
        settings = {each.name: each for each in map(checked, wanted.providers)}
        replay = self._replay(wanted) if wanted.replay_run_id else None
        self._make_room()
        recording = self._recording(wanted)
        gate = Gate()
        live = LiveAnswers(lambda call: self._providers.dial(call, settings), recording, gate)
        answering: Answering = live
        if replay is not None:
            folder = self._recorded.folder(wanted.replay_run_id)
            answering = ReplayAnswers(
                *replay,
                folder,
                check=partial(check_direction, wanted.policy_mode, wanted.replay_run_id),
                live=live,
                recording=recording,
                gate=gate,
                marks=self._marks(wanted),
            )
        elif wanted.mode is not None:
            scope = _scope(wanted, wanted.mode, wanted.seed)
            address = partial(self._address, wanted.mode, settings)
            answering = ModedAnswers(
                scope, address, self._kept, live, recording=recording, gate=gate
            )
        session_id = f"{wanted.kind}-{secrets.token_hex(8)}"
        session = Session(wanted, answering, gate, self._clock.monotonic_seconds())
        with self._lock:
            self._open[session_id] = session
        return Opened(session_id, replay[1] if replay else None)

    def _replay(self, wanted: Wanted) -> tuple[Replay, Summary]:
        if wanted.replay_run_id == wanted.run_id:
            raise InvalidInput(
                f"run {wanted.run_id} cannot replay itself; give the replay a run of its own"
            )
        replay = self._recorded.replay(
            wanted.replay_run_id, strict=not wanted.allow_live_miss, expected=wanted.expected
        )
        # Each call is checked when it is given; most recordings are told apart by their first.
        check_direction(wanted.policy_mode, wanted.replay_run_id, self._first_call(wanted), 1)
        return replay

    def _first_call(self, wanted: Wanted) -> dict[str, JsonValue]:
        return self._recorded.first_call(wanted.replay_run_id)

    def _address(self, mode: RuntimeMode, settings: Settings, call: CallRequest) -> str | None:
        """Where a call would go; None where the session asks nobody and does not care."""
        if mode.is_hermetic and call.provider not in settings:
            return None
        return self._providers.address(call, settings)

    def _marks(self, wanted: Wanted) -> ReplayedMarks | None:
        if wanted.mode is None:
            return None
        seed = seed_of_row(self._first_call(wanted)) if wanted.seed is None else wanted.seed
        return ReplayedMarks(_scope(wanted, wanted.mode, seed))

    def _recording(self, wanted: Wanted) -> Recording | None:
        """What the session records into; opened now, so that trouble shows before any call."""
        if not wanted.records:
            return None
        recording = self._recordings.take(wanted.run_id)
        try:
            recording.check_appendable()
            recording.claim(wanted.policy_mode)
        except BernsteinError:
            self._recordings.release(wanted.run_id)
            raise
        return recording

    def _session(self, session_id: str) -> Session:
        with self._lock:
            found = self._open.get(session_id)
            if found is not None:
                return found
            if session_id in self._closed:
                raise Conflict(f"session {session_id} is closed; open another one")
        kind = session_id.partition("-")[0]
        what = (
            "its position in the recording is gone: start the replay again, in a new run"
            if kind == "replay"
            else "open it again, and send calls without an answer again under their request ids"
        )
        raise SessionLost(
            f"session {session_id[:80]!r} is unknown; the recorder was started again since: {what}",
            kind=kind,
        )

    def _make_room(self) -> None:
        """Drop sessions that nobody came back for, when there are too many."""
        since = self._clock.monotonic_seconds() - USED_LATELY_SECONDS
        with self._lock:
            if len(self._open) < SESSIONS_MAX:
                return
            names = [name for name, each in self._open.items() if each.used_at < since]
            old = [self._open.pop(name) for name in names]
        for session in old:
            self._let_go(session)
        if not old:
            raise TooMany(f"{SESSIONS_MAX} sessions are open; close some and try again")

    def _let_go(self, session: Session) -> None:
        if session.wanted.records:
            self._recordings.release(session.wanted.run_id)


def _scope(wanted: Wanted, mode: RuntimeMode, seed: int | None) -> Scope:
    return Scope(mode, wanted.run_id, version_of(VERSION, wanted.agent_version), seed)
