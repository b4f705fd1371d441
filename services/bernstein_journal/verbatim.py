"""Rows that an importer ships: appended exactly as they came, one writer a file."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256

from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunNotFound,
    RunSealed,
)
from bernstein_runtime import limits
from bernstein_store.store import Log, Store

OPEN_LOGS_MAX = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Stored bytes and where they go."""

    data: bytes
    start: int
    # SHA-256 of the file up to `start` as the importer knows it; None: not compared.
    prefix_sha256: bytes | None = None


class VerbatimLogs:
    """Safe for any number of threads; one append at a time, since importers send large pieces.

    Logs stay open between pieces: one that is opened anew puts half a row aside.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._open: OrderedDict[str, Log] = OrderedDict()

    def append(self, run_id: str, name: str, piece: Piece) -> int:
        """Append to a file of a run; its size afterwards. Bytes that are there already are not
        appended again, and a sealed journal takes no more.

        Raises RunNotFound, RunSealed, HeadMoved, LimitExceeded and what a log raises.
        """
        if not self._store.has_run(run_id):
            raise RunNotFound(f"there is no run {run_id}; create it first", run_id=run_id)
        return self._appended(name, piece, run_id if name == paths.journal_path(run_id) else "")

    def append_steps(self, agent_id: str, piece: Piece) -> int:
        """Append to a step journal, which is made if need be. Raises likewise."""
        return self._appended(paths.steps_path(agent_id), piece, "")

    def _appended(self, name: str, piece: Piece, ends_with: str) -> int:
        """`ends_with`: the run whose seal is the end of this file."""
        if len(piece.data) > limits.PIECE_BYTES_MAX:
            raise LimitExceeded(
                f"{len(piece.data)} bytes; a request takes at most {limits.PIECE_BYTES_MAX}"
            )
        with self._lock:
            stored = self._store.size(name) or 0
            self._check_prefix(name, piece, stored)
            if self._is_there(name, piece, stored):
                return stored
            if ends_with and self._store.size(paths.seal_path(ends_with)) is not None:
                raise RunSealed(f"run {ends_with} is finished and sealed here", run_id=ends_with)
            log = self._log(name)
            log.catch_up()
            if piece.start != log.size:
                raise HeadMoved(
                    f"{name} has {log.size} bytes and these were to follow {piece.start}; "
                    "the source was changed, or another importer is at work",
                    size_bytes=log.size,
                )
            if self._stored(name, log, piece.data):
                return log.size
            return self._appended(name, piece, ends_with)

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            for log in self._open.values():
                log.close()
            self._open.clear()

    def _is_there(self, name: str, piece: Piece, stored: int) -> bool:
        end = piece.start + len(piece.data)
        if not 0 <= piece.start <= end <= stored:
            return False
        return b"".join(self._store.read(name, piece.start, end)) == piece.data

    def _check_prefix(self, name: str, piece: Piece, stored: int) -> None:
        if piece.prefix_sha256 is None:
            return
        digest = sha256()
        if piece.start <= stored:
            for chunk in self._store.read(name, 0, piece.start):
                digest.update(chunk)
        if piece.start > stored or digest.digest() != piece.prefix_sha256:
            raise HeadMoved(
                f"the first {piece.start} bytes of {name} are other ones than the importer's;"
                " the source was changed, or two hosts use one id",
                size_bytes=stored,
            )

    def _log(self, name: str) -> Log:
        if name not in self._open:
            is_private = paths.is_private(name)
            self._open[name] = self._store.open_log(name, private=is_private)
        self._open.move_to_end(name)
        while len(self._open) > OPEN_LOGS_MAX:
            self._open.popitem(last=False)[1].close()
        return self._open[name]

    def _stored(self, name: str, log: Log, data: bytes) -> bool:
        """Whether it could be; not, when another journal brought the log further meanwhile."""
        try:
            log.append(data, [])
        except ForeignWriter:
            size = log.size
            log.catch_up()
            if log.size == size:
                raise
            return False
        except BernsteinError:
            self._open.pop(name).close()
            raise
        return True
