"""The bodies of a run's exchanges in one append-only file, found by their digests.

What is a record: `bernstein_formats.body_pack`. Where each begins is read from their heads when the
file is opened, sixteen bytes a body. Rules: docs/formats/llm-http.md, section 1.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bernstein_formats.body_pack import (
    CHAIN_BYTES_MAX,
    CHAIN_LENGTH_MAX,
    HEADER_BYTES,
    Record,
    packed,
    parse_record,
    unpacked,
)
from bernstein_formats.errors import BernsteinError, RowMalformed
from bernstein_store.store import Log, Reader, Store

# Bodies that were read or written last: the next one often rests on them.
CACHED_BYTES: Final = 64 * 1024 * 1024
SOURCES_MAX: Final = 1024
# Conversations in one lane are told apart by how their requests begin.
START_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class _Last:
    """The last body of a source: where its record is, and what has to be read to have it."""

    at: int
    digest: bytes
    chain_length: int
    chain_bytes: int


class _Places:
    """Where the record of each digest begins: of the opened file sorted, new ones beside them."""

    def __init__(self, found: Iterable[tuple[bytes, int]]) -> None:
        keys, places = array("Q"), array("Q")
        for digest, at in found:
            keys.append(_short(digest))
            places.append(at)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys = array("Q", (keys[each] for each in order))
        self._places = array("Q", (places[each] for each in order))
        self._new: dict[bytes, int] = {}

    def add(self, digest: bytes, at: int) -> None:
        self._new[digest] = at

    def of(self, digest: bytes) -> Iterator[int]:
        """Where it may begin: eight bytes of a digest can be those of another one."""
        if digest in self._new:
            yield self._new[digest]
        at = bisect_left(self._keys, _short(digest))
        while at < len(self._keys) and self._keys[at] == _short(digest):
            yield self._places[at]
            at += 1


class Bodies:
    """One file of bodies. Not thread-safe."""

    def __init__(self, store: Store, name: str, *, private: bool = False) -> None:
        """Nothing is made before the first body. Raises RowMalformed for a changed file."""
        self._store = store
        self._name = name
        self._private = private
        self._log: Log | None = None
        self._reader: Reader | None = store.open_reader(name)
        self._facts = self._facts_now()
        self._size = self._facts[0]
        # Where the whole records end.
        self._end = 0
        self._places = _Places(self._heads())
        self._last: OrderedDict[Hashable, _Last] = OrderedDict()
        self._cached: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0

    def add(self, bodies: Iterable[tuple[bytes, bytes, Hashable]]) -> None:
        """Keep bodies with their digests; durable when it returns.

        One is compressed with the last one of the same source in sight.
        """
        log = self._log or self._opened()
        records: list[bytes] = []
        at = log.size
        for digest, body, source in bodies:
            if self._found(digest) is not None:
                continue
            self._places.add(digest, at)
            records.append(self._packed(digest, body, source, at))
            at += len(records[-1])
        try:
            if records:
                log.append(b"".join(records), [])
        except BernsteinError:
            self._last.clear()  # nothing may rest on what is not there
            raise
        self._size = self._end = log.size
        self._facts = self._facts_now()

    def size(self, digest: bytes) -> int | None:
        """Bytes of a body; None: it is not there."""
        found = self._found(digest)
        return found[1].size if found else None

    def get(self, digest: bytes) -> bytes | None:
        """A body; None: it is not there. Raises RowMalformed for changed bytes."""
        found = self._found(digest)
        return self._body(*found) if found else None

    def is_current(self) -> bool:
        """Whether the file is still what was opened, and nobody else changed it."""
        return self._facts == self._facts_now()

    def is_shared(self) -> bool:
        """After a ForeignWriter: whether it was another recorder of this store; else raises it."""
        if self._log is not None:
            self._log.catch_up()
        return True

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()

    def _opened(self) -> Log:
        """Open for appending; a part of a record that a crash left is moved aside."""
        self._log = log = self._store.open_log(self._name, private=self._private)
        if self._end < log.size:
            log.set_aside(self._end)
        self._reader = self._store.open_reader(self._name)
        self._size = log.size
        return log

    def _facts_now(self) -> tuple[int, float]:
        return self._store.size(self._name) or 0, self._store.changed_at(self._name)

    def _heads(self) -> Iterator[tuple[bytes, int]]:
        while (record := self._record(self._end)) is not None:
            yield record.sha256, self._end
            self._end += record.length

    def _record(self, at: int) -> Record | None:
        if self._reader is None:
            return None
        return parse_record(self._reader.read(at, HEADER_BYTES), at, self._size)

    def _found(self, digest: bytes) -> tuple[int, Record] | None:
        for at in self._places.of(digest):
            record = self._record(at)
            if record is not None and record.sha256 == digest:
                return at, record
        return None

    def _packed(self, digest: bytes, body: bytes, source: Hashable, at: int) -> bytes:
        begins = (source, body[:START_BYTES])
        last = self._last.get(begins) or self._last.get(source)
        base = self._base(last, len(body)) if last else None
        if last is None or base is None:
            new = _Last(at, digest, 1, len(body))
            record = packed(body)
        else:
            new = _Last(at, digest, last.chain_length + 1, last.chain_bytes + len(body))
            record = packed(body, base, at - last.at)
        for each in (begins, source):
            self._last[each] = new
            self._last.move_to_end(each)
        while len(self._last) > SOURCES_MAX:
            self._last.popitem(last=False)
        self._cache(digest, body)
        return record

    def _base(self, last: _Last, size: int) -> bytes | None:
        """The body of `last`, if one more may rest on it."""
        if last.chain_length >= CHAIN_LENGTH_MAX or last.chain_bytes + size > CHAIN_BYTES_MAX:
            return None
        return self._cached.get(last.digest) or self.get(last.digest)

    def _body(self, at: int, record: Record) -> bytes:
        """Read the records that it rests on, as far as they are not at hand, and it."""
        chain: list[tuple[int, Record]] = []
        body = self._cached.get(record.sha256)
        while body is None:
            chain.append((at, record))
            if not record.back:
                body = b""
                break
            at -= record.back
            below = self._record(at)
            if below is None or len(chain) >= CHAIN_LENGTH_MAX:
                raise RowMalformed(
                    f"{self._name}: byte {at}: what a body rests on is not there; the file was"
                    " changed: restore it",
                    path=self._name,
                )
            record = below
            body = self._cached.get(record.sha256)
        for place, each in reversed(chain):
            body = self._unpacked(place, each, body)
        return body

    def _unpacked(self, at: int, record: Record, base: bytes) -> bytes:
        assert self._reader is not None
        frame = self._reader.read(at + HEADER_BYTES, record.frame_bytes)
        body = unpacked(frame, record, base if record.back else b"", at)
        self._cache(record.sha256, body)
        return body

    def _cache(self, digest: bytes, body: bytes) -> None:
        if digest not in self._cached:
            self._cached[digest] = body
            self._cached_bytes += len(body)
        self._cached.move_to_end(digest)
        while self._cached_bytes > CACHED_BYTES:
            _, gone = self._cached.popitem(last=False)
            self._cached_bytes -= len(gone)


def _short(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")
