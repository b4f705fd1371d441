"""The stored exchanges of agents with their providers: one log a run, and one file of bodies.

Rules: docs/formats/llm-http.md, sections 1 and 4.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from bernstein_formats.errors import (
    BernsteinError,
    ForeignWriter,
    InvalidInput,
    ReplayRecordingMissingError,
    RequestIdReused,
)
from bernstein_formats.http_exchange import Body, Exchange, parse_exchange
from bernstein_formats.http_rule_file import RULE_SET
from bernstein_formats.paths import llm_http_bodies_path, llm_http_path, quarantine_path
from bernstein_recorder.bodies import Bodies
from bernstein_store.store import Log, Mark, Store

KEPT_OPEN = 8


class _Open:
    """A run's log, and which requests appended to it."""

    def __init__(self, store: Store, name: str) -> None:
        self.log: Log = store.open_log(name)
        # Request id → digest of what it appended.
        self.done: dict[str, str] = {}
        self.note(self.log.marks)

    def note(self, marks: Iterable[Mark]) -> None:
        self.done.update((mark.request_id, mark.answer) for mark in marks)

    def has(self, run_id: str, request_id: str, digest: str) -> bool:
        """Whether the request appended these rows. Raises RequestIdReused for others."""
        if self.done.get(request_id, digest) != digest:
            raise RequestIdReused(
                f"request id {request_id} appended other exchanges to run {run_id}; make"
                " a new one for each message",
                request_id=request_id,
            )
        return request_id in self.done


class Exchanges:
    """Writes and reads exchanges. Thread-safe."""

    def __init__(self, store: Store, quarantine: Store) -> None:
        """`quarantine`: a private place outside of the project, for answers that hold secrets."""
        self._store = store
        self._quarantine = quarantine
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._bodies: OrderedDict[tuple[str, bool], Bodies] = OrderedDict()

    def record(
        self, run_id: str, request_id: str, bodies: Mapping[str, bytes], lines: Sequence[bytes]
    ) -> int:
        """Keep bodies by digest and append rows, all durable when it returns; gives the file's
        size. Once a request id; bodies alone change no file of rows. Raises InvalidInput,
        RequestIdReused."""
        _check_digests(bodies)
        exchanges = [_row(line) for line in lines]
        data = b"".join(lines)
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if not lines:
                self._keep(run_id, dict(bodies), exchanges)
                return 0
            opened = self._opened(run_id)
            if not opened.has(run_id, request_id, digest):
                self._keep(run_id, dict(bodies), exchanges)
            while not opened.has(run_id, request_id, digest):
                mark = Mark(request_id, opened.log.size + len(data), digest)
                self._write(run_id, opened, data, mark)
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

    def body(self, run_id: str, digest: bytes) -> bytes:
        """A stored body. Raises ReplayRecordingMissingError, RowMalformed for changed bytes."""
        with self._lock:
            found = self._bodies_of(run_id).get(digest)
            if found is None:
                found = self._bodies_of(run_id, is_private=True).get(digest)
        if found is None:
            raise ReplayRecordingMissingError(
                f"{llm_http_bodies_path(run_id)} lacks the body {digest.hex()}: the recording of"
                f" run {run_id} is not whole; restore the file (an answer that holds secrets is"
                f" only where it was recorded, in {quarantine_path(run_id)} of the recorder)",
                run_id=run_id,
            )
        return found

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            for opened in self._open.values():
                opened.log.close()
            for bodies in self._bodies.values():
                bodies.close()
            self._open.clear()
            self._bodies.clear()

    def _keep(self, run_id: str, bodies: dict[str, bytes], exchanges: Sequence[Exchange]) -> None:
        """Store what is given, if it is all that the rows name and is not stored yet."""
        for exchange in exchanges:
            for body in _named(exchange).values():
                self._check_stored(run_id, body, bodies.get(body.sha256_hex))
        sources = {
            body.sha256_hex: (exchange.lane, kind)
            for exchange in exchanges
            for kind, body in _named(exchange).items()
        }
        private = {each.answer.body.sha256_hex for each in exchanges if each.quarantined}
        if any(each.rules_sha256 == RULE_SET.sha256_hex for each in exchanges):
            # The rules that made the keys are part of the recording.
            bodies[RULE_SET.sha256_hex] = RULE_SET.data
        for is_private in (False, True):
            chosen = [
                (bytes.fromhex(digest), body, sources.get(digest))
                for digest, body in bodies.items()
                if (digest in private) is is_private
            ]
            self._add(run_id, chosen, is_private=is_private)

    def _check_stored(self, run_id: str, body: Body, given: bytes | None) -> None:
        size = None if given is None else len(given)
        for is_private in (False, True):
            if size is None:
                stored = self._bodies_of(run_id, is_private=is_private)
                size = stored.size(bytes.fromhex(body.sha256_hex))
        if size != body.size:
            raise InvalidInput(
                f"the body {body.sha256_hex} of {body.size} bytes is not stored yet", field="line"
            )

    def _add(
        self, run_id: str, bodies: Sequence[tuple[bytes, bytes, Hashable]], *, is_private: bool
    ) -> None:
        if not bodies:
            return
        stored = self._bodies_of(run_id, is_private=is_private)
        try:
            stored.add(bodies)
        except BernsteinError as error:
            # Nobody knows the file now: whoever comes next opens it anew.
            self._bodies.pop((run_id, is_private)).close()
            if not (isinstance(error, ForeignWriter) and stored.is_shared()):
                raise
            self._add(run_id, bodies, is_private=is_private)

    def _opened(self, run_id: str) -> _Open:
        found = self._open.get(run_id)
        if found is None:
            while len(self._open) >= KEPT_OPEN:
                self._open.popitem(last=False)[1].log.close()
            found = self._open[run_id] = _Open(self._store, llm_http_path(run_id))
        self._open.move_to_end(run_id)
        return found

    def _bodies_of(self, run_id: str, *, is_private: bool = False) -> Bodies:
        key = (run_id, is_private)
        found = self._bodies.get(key)
        if found is not None and not found.is_current():
            self._bodies.pop(key).close()
            found = None
        if found is None:
            while len(self._bodies) >= 2 * KEPT_OPEN:
                self._bodies.popitem(last=False)[1].close()
            store = self._quarantine if is_private else self._store
            name = quarantine_path(run_id) if is_private else llm_http_bodies_path(run_id)
            found = self._bodies[key] = Bodies(store, name, private=is_private)
        self._bodies.move_to_end(key)
        return found

    def _write(self, run_id: str, opened: _Open, data: bytes, mark: Mark) -> None:
        """Append rows, or learn what another recorder appended meanwhile."""
        try:
            try:
                opened.log.append(data, [mark])
            except ForeignWriter:
                size = opened.log.size
                opened.note(opened.log.catch_up())
                if opened.log.size == size:
                    raise
            else:
                opened.note([mark])
        except BernsteinError:
            # Likewise.
            self._open.pop(run_id).log.close()
            raise


def _named(exchange: Exchange) -> dict[str, Body]:
    """The stored bodies of an exchange, by what they are."""
    return {
        "envelope": exchange.envelope,
        "request": exchange.request,
        "answer": exchange.answer.body,
    }


def _row(line: bytes) -> Exchange:
    if line.count(b"\n") != 1 or not line.endswith(b"\n"):
        raise InvalidInput("an exchange is one line with its line feed", field="line")
    return parse_exchange(line, 1)


def _check_digests(bodies: Mapping[str, bytes]) -> None:
    for digest, body in bodies.items():
        found = hashlib.sha256(body).hexdigest()
        if found != digest:
            raise InvalidInput(f"the bytes have the digest {found}, not {digest}")
