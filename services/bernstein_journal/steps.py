"""The step journals of all agents: one writer a journal, whoever asks.

Two windows on one session share this writer; a caller that says which step it believes is last is
refused when another one was recorded meanwhile.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    DiskFull,
    ForeignWriter,
    InvalidInput,
    NotFound,
    RunExists,
)
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.step_log import AppendedSteps, AppendSteps, StepLog
from bernstein_runtime.clock import Clock
from bernstein_store.store import Store

OPEN_LOGS_MAX = 64


@dataclass(slots=True)
class _Session:
    """One agent's journal, closed until it is used; its lock is held while it is."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    log: StepLog | None = None
    users: int = 0

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None


class StepJournals:
    """Safe for any number of threads; sessions do not wait for one another."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._rows = AcknowledgedRows(store)
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def append(self, request: AppendSteps) -> AppendedSteps:
        """Raises what AppendSteps fails with; nothing is made for a session that is not there."""
        paths.check_agent_id(request.agent_id)
        with self._session(request.agent_id) as session:
            try:
                while (appended := self._append(session, request)) is None:
                    session.close()
            except BernsteinError as error:
                if not isinstance(error, DiskFull | InvalidInput):
                    # What changed under us is looked at again when the next step comes.
                    session.close()
                raise
            return appended

    def read(self, agent_id: str, start_offset: int = 0) -> Iterator[bytes]:
        """The stored bytes as they are. Raises NotFound, and RowsMissing where steps are gone."""
        name = paths.steps_path(agent_id)
        self._rows.check(name)
        size = self._store.size(name)
        if size is None:
            raise _not_found(agent_id)
        return self._store.read(name, start_offset, size)

    def take_in_blob(self, agent_id: str, digest: str, parts: Iterator[bytes]) -> bool:
        """Store a blob of a session unless it is there; whether it was not.

        Raises NotFound for a session that is not there, InvalidInput for bytes of another digest.
        """
        name = paths.blob_path(digest)
        if self._store.size(paths.steps_path(agent_id)) is None:
            raise _not_found(agent_id)
        if self._store.size(name) is not None:
            return False
        self._store.put_parts(name, _hashing_to(digest, parts))
        return True

    def close(self) -> None:
        """Let go of the files; no call is in flight any more."""
        for session in self._sessions.values():
            session.close()

    def _append(self, session: _Session, request: AppendSteps) -> AppendedSteps | None:
        """None when another journal was faster: the log is to be opened again."""
        if session.log is not None and not session.log.is_current():
            return None
        if session.log is None:
            if not request.start:
                self._check_resumable(request.agent_id)
            session.log = StepLog(self._store, request.agent_id, self._clock)
        known = session.log.known(request)
        if known is not None:
            return known
        _check_start(request, session.log)
        try:
            return session.log.append(request)
        except ForeignWriter:
            if session.log.is_current():
                raise
            return None

    @contextmanager
    def _session(self, agent_id: str) -> Iterator[_Session]:
        with self._lock:
            session = self._sessions.setdefault(agent_id, _Session())
            self._sessions.move_to_end(agent_id)
            session.users += 1
        try:
            with session.lock:
                yield session
        finally:
            with self._lock:
                session.users -= 1
                self._close_unused()

    def _close_unused(self) -> None:
        unused = [name for name, session in self._sessions.items() if not session.users]
        for name in unused[: max(len(self._sessions) - OPEN_LOGS_MAX, 0)]:
            self._sessions.pop(name).close()

    def _check_resumable(self, agent_id: str) -> None:
        """Look before anything is made: a typo must not begin a new session."""
        size = self._store.size(paths.steps_path(agent_id))
        if size is None:
            raise _not_found(agent_id)
        if not size:
            raise _never_began(agent_id)


def _hashing_to(digest: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same parts; InvalidInput behind the last one where they are not what the digest says."""
    found = sha256()
    for part in parts:
        found.update(part)
        yield part
    if found.hexdigest() != digest:
        raise InvalidInput(
            f"the bytes of blob {digest} hash to {found.hexdigest()}; it is not stored",
            digest=digest,
        )


def _check_start(request: AppendSteps, log: StepLog) -> None:
    if request.start and log.head.seq:
        raise RunExists(
            f"the session of agent {request.agent_id} has {log.head.seq} step(s) already;"
            " go on with it, or choose another id",
            agent_id=request.agent_id,
        )
    if not request.start and not log.head.seq:
        raise _never_began(request.agent_id)


def _not_found(agent_id: str) -> NotFound:
    return NotFound(
        f"there is no step journal of agent {agent_id}; check the id, or start the session",
        agent_id=agent_id,
    )


def _never_began(agent_id: str) -> NotFound:
    return NotFound(
        f"the step journal of agent {agent_id} is empty: it never had a step; start it",
        agent_id=agent_id,
    )
