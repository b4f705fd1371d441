"""The stored exchanges of agents with their providers: one log a run, bodies by digest beside it.

Rules: docs/formats/llm-http.md, sections 1 and 4.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator

from bernstein_formats.errors import (
    ForeignWriter,
    InvalidInput,
    ReplayRecordingMissingError,
    RequestIdReused,
    RowMalformed,
    StoreFailed,
)
from bernstein_formats.http_exchange import parse_exchange
from bernstein_formats.paths import llm_http_body_path, llm_http_path
from bernstein_store.store import Log, Mark, Store

KEPT_OPEN = 8


class _Open:
    """A run's log, and which requests appended to it."""

    def __init__(self, store: Store, name: str) -> None:
        self.log: Log = store.open_log(name)
        # Request id → digest of what it appended.
        self.done = {mark.request_id: mark.answer for mark in self.log.marks}


class Exchanges:
    """Writes and reads exchanges. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def store_body(self, run_id: str, digest: str, parts: Iterator[bytes]) -> int:
        """Keep a body; durable when it returns. Raises InvalidInput for bytes of another digest."""
        name = llm_http_body_path(run_id, digest)
        size = self._store.size(name)
        return size if size is not None else self._store.put_parts(name, _checked(parts, digest))

    def append(self, run_id: str, request_id: str, line: bytes) -> int:
        """Append a row whose bodies are stored; gives the file's size. Once a request id."""
        self._check(run_id, line)
        digest = hashlib.sha256(line).hexdigest()
        with self._lock:
            opened = self._opened(run_id)
            if request_id in opened.done:
                if opened.done[request_id] != digest:
                    raise RequestIdReused(
                        f"request id {request_id} appended another exchange to run {run_id}; make"
                        " a new one for each exchange",
                        request_id=request_id,
                    )
                return opened.log.size
            self._write(run_id, opened, line, Mark(request_id, opened.log.size + len(line), digest))
            opened.done[request_id] = digest
            return opened.log.size

    def read(self, run_id: str) -> Iterator[bytes]:
        """The file as stored. Raises ReplayRecordingMissingError."""
        name = llm_http_path(run_id)
        if self._store.size(name) is None:
            raise ReplayRecordingMissingError(
                f"run {run_id} has no recorded exchanges ({name}); record one with"
                " `bernstein record -- COMMAND`",
                run_id=run_id,
            )
        yield from self._store.read(name)

    def read_body(self, run_id: str, digest: str) -> Iterator[bytes]:
        """A stored body. Raises ReplayRecordingMissingError, RowMalformed for changed bytes."""
        name = llm_http_body_path(run_id, digest)
        if self._store.size(name) is None:
            raise ReplayRecordingMissingError(
                f"{name} is missing: the recording of run {run_id} is not whole; restore the file",
                path=name,
            )
        try:
            yield from _checked(self._store.read(name), digest)
        except InvalidInput as error:
            raise RowMalformed(
                f"{name}: {error.message}; the file was changed: restore it", path=name
            ) from error

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            for each in self._open.values():
                each.log.close()
            self._open.clear()

    def _check(self, run_id: str, line: bytes) -> None:
        if line.count(b"\n") != 1 or not line.endswith(b"\n"):
            raise InvalidInput("an exchange is one line with its line feed", field="line")
        exchange = parse_exchange(line, 1)
        for body in (exchange.request, exchange.answer.body):
            if self._store.size(llm_http_body_path(run_id, body.sha256_hex)) != body.size:
                raise InvalidInput(
                    f"the body {body.sha256_hex} of {body.size} bytes is not stored yet",
                    field="line",
                )

    def _opened(self, run_id: str) -> _Open:
        found = self._open.get(run_id)
        if found is None:
            while len(self._open) >= KEPT_OPEN:
                self._open.popitem(last=False)[1].log.close()
            found = self._open[run_id] = _Open(self._store, llm_http_path(run_id))
        self._open.move_to_end(run_id)
        return found

    def _write(self, run_id: str, opened: _Open, line: bytes, mark: Mark) -> None:
        try:
            opened.log.append(line, [mark])
        except (ForeignWriter, StoreFailed):
            # Nobody knows the file now: the next append opens it anew.
            self._open.pop(run_id).log.close()
            raise


def _checked(parts: Iterator[bytes], digest: str) -> Iterator[bytes]:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
        yield part
    if found.hexdigest() != digest:
        raise InvalidInput(f"the bytes have the digest {found.hexdigest()}, not {digest}")
