"""Opens a recording for look-ups through an index file of ours, made at the first time.

In `.sdd/svc/index` stand `<run>.idx` and `<run>.sum` (which state of the recording, and its
SHA-256). Both are a cache: they fit as long as size, time of change and both ends of the recording
are the same, and what cannot be written costs time at the next opening and nothing else.
"""

import hashlib
import mmap
import os
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from bernstein_formats.llm_index import CallIndex, build_index, open_index
from bernstein_formats.paths import llm_calls_path
from bernstein_recorder.recording import Summary
from bernstein_runtime.regular_file import open_regular, read_regular
from bernstein_store.store import Store

DIGEST_BYTES = 32
END_BYTES = 4096
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that can be looked up, as it was when it was opened."""

    index: CallIndex
    summary: Summary
    changed_at: float = 0.0


class RecordedIndexes:
    """Indexes of recordings, kept in a folder of ours."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def open(self, run_id: str, *, trust_digest: bool) -> Recorded | None:
        """The run's recording; None when there is none. Without `trust_digest` the whole file is
        hashed now, whatever the cache says: evidence is compared with bytes."""
        name = llm_calls_path(run_id)
        size = self._store.size(name)
        if size is None:
            return None
        changed_at = self._store.changed_at(name)
        fingerprint = self._fingerprint(name, size, changed_at)
        state = hashlib.sha256(fingerprint).digest()
        path, sum_path = self._folder / f"{run_id}.idx", self._folder / f"{run_id}.sum"
        known = _contents(sum_path)
        is_known = len(known) == 2 * DIGEST_BYTES and known.startswith(state)
        mapped = _mapped(path)
        index = open_index(mapped, fingerprint) if mapped else None
        if index is not None and is_known and trust_digest:
            digest = known[DIGEST_BYTES:]
        else:
            digest, index = self._read(name, size, fingerprint, path, index)
            if known != state + digest:
                _keep(sum_path, state + digest)
        return Recorded(index, Summary(index.record_count, size, digest), changed_at)

    def _read(
        self, name: str, size: int, fingerprint: bytes, path: Path, index: CallIndex | None
    ) -> tuple[bytes, CallIndex]:
        """The SHA-256 of the whole file, read once, and its index, made where there is none."""
        hashing = hashlib.sha256()

        def chunks() -> Iterator[bytes]:
            for chunk in self._store.read(name, 0, size):
                hashing.update(chunk)
                yield chunk

        if index is None:
            built = build_index(chunks(), fingerprint)
            index = CallIndex(built)
            _keep(path, built)
        else:
            deque(chunks(), maxlen=0)
        return hashing.digest(), index

    def _fingerprint(self, name: str, size: int, changed_at: float) -> bytes:
        ends = [
            *self._store.read(name, 0, min(size, END_BYTES)),
            *self._store.read(name, max(0, size - END_BYTES), size),
        ]
        return f"{size} {changed_at!r} ".encode() + b"".join(ends)


def _mapped(path: Path) -> mmap.mmap | None:
    """The file's bytes without reading them; it is only ever replaced whole."""
    try:
        with open_regular(path) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # ValueError: an empty file
        return None


def _contents(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError:
        return b""


def _keep(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        log.warning("index_not_kept", path=str(path), error=error.strerror)
        with suppress(OSError):  # the folder may not be there at all
            temporary.unlink()
