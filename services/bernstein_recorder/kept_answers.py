"""Answers kept by fingerprint for calls to come, a file a mode; each mode reads what it may.

Rules: docs/formats/determinism.md, sections 4 and 5. Nothing but this process's own live answers
gets in, and only under the mode of the session that asked.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from bernstein_formats.cached_answers import (
    StoredAnswer,
    address_digest,
    answer_line,
    answers_path,
    parse_answer,
)
from bernstein_formats.errors import BernsteinError, CacheModeError
from bernstein_formats.fingerprint import Fingerprint, FingerprintInput, in_mode
from bernstein_formats.modes import RuntimeMode, readable_modes
from bernstein_runtime.clock import Clock
from bernstein_store.store import Log, Store

# A miss compares itself with so many kept answers of each mode, the newest.
COMPARED_MAX = 1000
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer, and the mode that it was kept under."""

    answer: StoredAnswer
    mode: RuntimeMode


class KeptAnswers:
    """The answers of all modes. Thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._files = {mode: _Answers(store, mode) for mode in RuntimeMode}
        self._clock = clock

    def find(self, key: FingerprintInput, address: str | None) -> Kept | None:
        """The first kept answer among the modes that the key's mode may read; changes nothing.

        It is of the provider at this address, or without one of the only one that gave any.
        """
        for mode in readable_modes(key.runtime_mode):
            answer = self._files[mode].find(in_mode(key, mode).composite, address)
            if answer is not None:
                return Kept(answer, mode)
        return None

    def keep(
        self, key: FingerprintInput, made: Fingerprint, address: str, response: str, run_id: str
    ) -> None:
        """Keep a live answer under the key's own mode; the first one of a fingerprint and an
        address stays.

        What cannot be kept costs another call later, so it is only told to the log.
        """
        mode = key.runtime_mode
        if mode.is_hermetic:
            raise CacheModeError(f"nothing is stored in {mode}", mode=mode)
        line = answer_line(
            key, made, address, response, run_id=run_id, ts=self._clock.now_seconds()
        )
        try:
            self._files[mode].add(made.composite, address_digest(address), line)
        except BernsteinError as error:
            log.warning("answer_not_kept", run_id=run_id, mode=mode, reason=error.reason)

    def nearby(self, mode: RuntimeMode) -> Iterator[StoredAnswer]:
        """What a miss of this mode is compared with, the newest answers first."""
        for each in readable_modes(mode):
            yield from islice(self._files[each].newest(), COMPARED_MAX)

    def close(self) -> None:
        """Let go of the files."""
        for each in self._files.values():
            each.close()


class _Answers:
    """One mode's file, and where in it each fingerprint stands."""

    def __init__(self, store: Store, mode: RuntimeMode) -> None:
        self._store = store
        self._name = answers_path(mode)
        self._lock = threading.Lock()
        self._log: Log | None = None
        # Fingerprint → digest of the provider's address → place.
        self._places: dict[str, dict[str, tuple[int, int]]] | None = None

    def find(self, composite: str, address: str | None) -> StoredAnswer | None:
        with self._lock:
            places = self._indexed().get(composite, {})
            if address is None:
                digest = next(iter(places), "") if len(places) == 1 else ""
            else:
                digest = address_digest(address)
            place = places.get(digest)
        found = self._read(place) if place else None
        if found is not None and (found.composite, found.address_sha256) == (composite, digest):
            return found
        with self._lock:  # what a crash left unacknowledged is gone once the file is written again
            self._indexed().get(composite, {}).pop(digest, None)
        return None

    def add(self, composite: str, digest: str, line: bytes) -> None:
        with self._lock:
            places = self._indexed().setdefault(composite, {})
            if digest in places:
                return
            if self._log is None:
                self._log = self._store.open_log(self._name)
            start = self._log.size
            try:
                self._log.append(line, [])
            except BernsteinError:
                # Opened and indexed anew at the next use: other recorders may have appended.
                self._log.close()
                self._log = self._places = None
                raise
            places[digest] = (start, len(line))

    def newest(self) -> Iterator[StoredAnswer]:
        with self._lock:
            places = [place for each in self._indexed().values() for place in each.values()]
        for place in sorted(places, reverse=True):
            found = self._read(place)
            if found is not None:
                yield found

    def close(self) -> None:
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _indexed(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Made at the first use. The caller holds the lock."""
        if self._places is None:
            self._places = {}
            start = 0
            for line in _lines(self._store.read(self._name)):
                found = parse_answer(line)
                if found is not None:
                    places = self._places.setdefault(found.composite, {})
                    places.setdefault(found.address_sha256, (start, len(line) + 1))
                start += len(line) + 1
        return self._places

    def _read(self, place: tuple[int, int]) -> StoredAnswer | None:
        start, length = place
        return parse_answer(b"".join(self._store.read(self._name, start, start + length)))


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Ended by LF alone, so that their places can be counted; one without an end is none yet."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
