"""Opens a recording for look-ups through an index file of ours, made at the first time.

In `.sdd/svc/index` stand `<run>.idx` and `<run>.sum` (which state of the recording, and its
SHA-256). Both are a cache: they fit as long as size, time of change and both ends of the recording
are the same, and what cannot be written costs time at the next opening and nothing else.
"""

import hashlib
import mmap
import os
import secrets
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
BLOCK_BYTES = 1024 * 1024
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
        path = self._folder / f"{run_id}.idx"
        mapped = _mapped(path)
        index = open_index(mapped, fingerprint) if mapped else None
        if index is None:
            built = build_index(_Stored(self._store, name, size), fingerprint)
            index = CallIndex(built)
            _keep(path, built)
        digest = self._digest(run_id, name, size, fingerprint, trust=trust_digest)
        return Recorded(index, Summary(index.record_count, size, digest), changed_at)

    def _digest(
        self, run_id: str, name: str, size: int, fingerprint: bytes, *, trust: bool
    ) -> bytes:
        path = self._folder / f"{run_id}.sum"
        state = hashlib.sha256(fingerprint).digest()
        known = _contents(path)
        if trust and len(known) == 2 * DIGEST_BYTES and known.startswith(state):
            return known[DIGEST_BYTES:]
        digest = hashlib.sha256()
        for chunk in self._store.read(name, 0, size):
            digest.update(chunk)
        if known != state + digest.digest():
            _keep(path, state + digest.digest())
        return digest.digest()

    def _fingerprint(self, name: str, size: int, changed_at: float) -> bytes:
        ends = [
            *self._store.read(name, 0, min(size, END_BYTES)),
            *self._store.read(name, max(0, size - END_BYTES), size),
        ]
        return f"{size} {changed_at!r} ".encode() + b"".join(ends)


class _Stored:
    """A stored file that can be sliced, in order at best, without being held whole."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store = store
        self._name = name
        self._size = size
        self._block_at = 0
        self._block = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        if not self._block_at <= start <= end <= self._block_at + len(self._block):
            block_end = min(self._size, max(end, start + BLOCK_BYTES))
            self._block_at = start
            self._block = b"".join(self._store.read(self._name, start, block_end))
        return self._block[start - self._block_at : end - self._block_at]

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self[:])

    def find(self, wanted: bytes) -> int:
        """Where the first one is, -1 for nowhere; `wanted` is one byte."""
        before = 0
        for chunk in self._store.read(self._name, 0, self._size):
            at = chunk.find(wanted)
            if at >= 0:
                return before + at
            before += len(chunk)
        return -1


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
