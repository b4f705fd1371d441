"""A project's services as an import sees them, without processes: the journal's own way of storing.

Calls can be made to fail before they do anything, or after: then their answer is lost.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bernstein_client.recorder import Recording
from bernstein_client.values import FinishedRun, Rederived, RunInfo
from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    ReplayRecordingMissingError,
    RunExists,
    RunNotFound,
)
from bernstein_journal.verbatim import Piece, VerbatimLogs
from bernstein_store.files import FileStore

Answer = TypeVar("Answer")


class DirectProject:
    """One object for all services."""

    def __init__(self, sdd: Path) -> None:
        self.sdd = sdd
        self.calls = 0
        # Raised by the next calls, before they do anything, or instead of their answer.
        self.fails: BernsteinError | None = None
        self.answer_lost: BernsteinError | None = None
        self.seal_fails: BernsteinError | None = None
        self.steps = _Steps(self)
        self.restart()

    def restart(self) -> None:
        """As after a kill: what was open is opened anew."""
        self._store = FileStore(self.sdd)
        self._logs = VerbatimLogs(self._store)

    @property
    def journal(self) -> "DirectProject":
        return self

    @property
    def recorder(self) -> "DirectProject":
        return self

    @property
    def rederiver(self) -> "DirectProject":
        return self

    def stored(self, name: str) -> bytes:
        return self._store.get(name) or b""

    def create_run(self, run_id: str = "", metadata: bytes = b"", replay: bytes = b"") -> str:
        if self._store.has_run(run_id):
            raise RunExists("there already")
        self._store.make_run(run_id)
        return run_id

    def get_run(self, run_id: str) -> RunInfo:
        if self._store.size(paths.journal_path(run_id)) is None:
            raise RunNotFound("none")
        seal = self._store.get(paths.seal_path(run_id)) or b""
        return RunInfo(run_id, 0, 0, None, None, seal, "", "")

    def append_rows(
        self, run_id: str, part: str, start: int, data: bytes, prefix: bytes | None = None
    ) -> int:
        named = {"journal": paths.journal_path, "spine": paths.spine_path}
        piece = Piece(data, start, prefix)
        return self.answered(lambda: self._logs.append(run_id, named[part](run_id), piece))

    def get_recording(self, run_id: str) -> Recording:
        size = self._store.size(paths.llm_calls_path(run_id))
        if size is None:
            raise ReplayRecordingMissingError("none")
        return Recording(0, size, "")

    def append_calls(
        self, run_id: str, start: int, data: bytes, prefix: bytes | None = None
    ) -> int:
        name, piece = paths.llm_calls_path(run_id), Piece(data, start, prefix)
        return self.answered(lambda: self._logs.append(run_id, name, piece))

    def append_steps(self, agent_id: str, piece: Piece) -> int:
        return self.answered(lambda: self._logs.append_steps(agent_id, piece))

    def finish_run(self, run_id: str, *, spine_seal: bool = True) -> FinishedRun:
        assert not spine_seal
        if self.seal_fails is not None:
            raise self.seal_fails
        self._store.put(paths.seal_path(run_id), b"{}")
        return FinishedRun("", 0, b"{}")

    def rederive_run(self, run_id: str) -> Rederived:
        raise RunNotFound("not asked here")

    def answered(self, work: Callable[[], Answer]) -> Answer:
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        answer = work()
        if self.answer_lost is not None:
            raise self.answer_lost
        return answer

    @contextmanager
    def losing(self, error: BernsteinError, *, answer: bool) -> Iterator[None]:
        """Every call fails meanwhile; its work is done when only the answer is lost."""
        self.fails, self.answer_lost = (None, error) if answer else (error, None)
        try:
            yield
        finally:
            self.fails = self.answer_lost = None


class _Steps:
    def __init__(self, project: DirectProject) -> None:
        self._project = project

    def import_blob(self, agent_id: str, digest: str, read: Callable[[], Iterator[bytes]]) -> bool:
        raise AssertionError("no step of these tests refers to a blob")

    def append_rows(
        self, agent_id: str, start: int, data: bytes, prefix: bytes | None = None
    ) -> int:
        return self._project.append_steps(agent_id, Piece(data, start, prefix))
