"""The look-up index beside `llm_calls.jsonl`: which rows answer a key, without reading the others.

It is only a cache. Each row is read and checked when it is served, and an index that does not fit
its recording is built again. All numbers are little-endian; records stand in recorded order.

    header     magic, SHA-256 of the fingerprint, numbers of records, slots, discarded lines
    records    number, offset, length, line, next record of the key + 1, lane tag, parameters tag
    slots      open addressing by half of the key: the other half, first record of the key + 1
    discarded  lines that record no call

Lines count from 1. A tag is 0 for an absent member.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple, Protocol

from bernstein_formats.canonical import JsonValue, parse_loosely
from bernstein_formats.errors import RecordingChanged, RowMalformed
from bernstein_formats.journal_reader import LineBlocks, is_blank
from bernstein_formats.llm_calls import parse_call

_MAGIC: Final = b"BSTCALL1"
_HEADER: Final = Struct("<8s32sQQQ")
_RECORD: Final = Struct("<IQQIIQQ")
_SLOT: Final = Struct("<QI")
_HALVES: Final = Struct("<QQ")
_NUMBER: Final = Struct("<I")
_NEXT_AT: Final = 24  # within a record

# Keys are hashes and spread evenly; only forged ones make a longer search.
_MAX_STEPS: Final = 1000


class Buffer(Protocol):
    """Bytes, or a memory map of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...


class Record(NamedTuple):
    """Where a recorded call stands, and what is asked of its caller (a tuple: made per look-up)."""

    number: int
    offset: int
    length: int
    line: int
    next_record: int
    lane_tag: int
    parameters_tag: int

    @property
    def is_for_all(self) -> bool:
        """Whether it asks nothing of its caller."""
        return not self.lane_tag and not self.parameters_tag


@lru_cache(maxsize=4096)
def tag(text: str) -> int:
    """Return 64 bits that stand for a lane or a digest; 0 for none."""
    if not text:
        return 0
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]) or 1


def _key_halves(key: str) -> tuple[int, int]:
    """Return the first 16 bytes of a key as two numbers; a key that is no hash is hashed first."""
    half = key[:32]
    try:
        raw = bytes.fromhex(half)
    except ValueError:
        raw = b""
    if raw.hex() != half or len(raw) != _HALVES.size:
        raw = sha256(key.encode("utf-8", "surrogatepass")).digest()
    return _HALVES.unpack(raw[: _HALVES.size])


def build_index(recording: Iterable[bytes], fingerprint: bytes) -> bytes:
    """Index a recording that comes in chunks; `fingerprint` says which state of it this is."""
    building = _Building()
    offset = line = 0
    for block in LineBlocks(_with_single_line_ends(recording)):
        for text in block:
            line += 1
            building.add(line, offset, text)
            offset += len(text) + 1
    return building.index_bytes(fingerprint)


def _with_single_line_ends(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Give chunks in which one byte ends each line, and every byte stands where it stood."""
    held = b""
    for each in chunks:
        chunk = held + each
        held = b""
        if chunk.find(b"\r") >= 0:
            if chunk.endswith(b"\r"):  # half of a CRLF perhaps
                held, chunk = b"\r", chunk[:-1]
            chunk = chunk.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        yield chunk
    if held:
        yield b"\n"


class _Building:
    """An index in the making; the records are packed already."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._count = 0
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}  # of the keys with several records
        self._discarded = array("I")

    def add(self, line: int, offset: int, text: bytes) -> None:
        try:
            row = parse_call(text, parse_loosely)
        except RowMalformed:
            if not is_blank(text):
                self._discarded.append(line)
            return
        lane, digest = _tag_of(row.get("lane")), _tag_of(row.get("parameters_digest"))
        key, number = str(row["key"]), self._count
        self._records += _RECORD.pack(number, offset, len(text), line, 0, lane, digest)
        first = self._first.setdefault(key, number)
        if first != number:
            before = self._last.get(key, first)
            _NUMBER.pack_into(self._records, before * _RECORD.size + _NEXT_AT, number + 1)
            self._last[key] = number
        self._count = number + 1

    def index_bytes(self, fingerprint: bytes) -> bytes:
        slots = self._slots()
        counts = self._count, len(slots) // _SLOT.size, len(self._discarded)
        header = _HEADER.pack(_MAGIC, sha256(fingerprint).digest(), *counts)
        return b"".join((header, self._records, slots, _little_endian(self._discarded)))

    def _slots(self) -> bytearray:
        count = 1 << (2 * len(self._first)).bit_length()
        slots = bytearray(count * _SLOT.size)
        taken = bytearray(count)
        for key, first in self._first.items():
            half, slot = _key_halves(key)
            slot &= count - 1
            steps = 0
            while taken[slot]:
                slot = (slot + 1) & (count - 1)
                steps += 1
                if steps > _MAX_STEPS:
                    raise RowMalformed("the keys of the recording are no hashes: it was forged")
            taken[slot] = 1
            _SLOT.pack_into(slots, slot * _SLOT.size, half, first + 1)
        return slots


def _tag_of(value: JsonValue) -> int:
    return tag(value) if type(value) is str else 0


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def open_index(buffer: Buffer, fingerprint: bytes) -> "CallIndex | None":
    """Return the index, or None when it is not one, not whole, or of another state."""
    if len(buffer) < _HEADER.size:
        return None
    magic, stored, records, slots, discarded = _HEADER.unpack_from(buffer)
    if magic != _MAGIC or stored != sha256(fingerprint).digest():
        return None
    size = _HEADER.size + records * _RECORD.size + slots * _SLOT.size + discarded * _NUMBER.size
    return CallIndex(buffer) if len(buffer) == size else None


class CallIndex:
    """An index over a buffer, usually a memory map; reads what a look-up touches and no more."""

    def __init__(self, buffer: Buffer) -> None:
        """Take a buffer that `build_index` made and `open_index` let pass."""
        _, _, self.record_count, slots, self.discarded_count = _HEADER.unpack_from(buffer)
        self._buffer = buffer
        self._mask = slots - 1
        self._slots_at = _HEADER.size + self.record_count * _RECORD.size
        self._discarded_at = self._slots_at + slots * _SLOT.size

    def record(self, number: int) -> Record:
        fields = _RECORD.unpack_from(self._buffer, _HEADER.size + number * _RECORD.size)
        return tuple.__new__(Record, fields)  # Record(*fields), in half the time

    def find(self, digest: bytes) -> list[Record]:
        """Return the records of a key, given as 32 bytes, in recorded order."""
        wanted, slot = _HALVES.unpack_from(digest)
        for step in range(_MAX_STEPS + 1):
            at = self._slots_at + (slot + step & self._mask) * _SLOT.size
            found, first = _SLOT.unpack_from(self._buffer, at)
            if not first:
                break
            if found == wanted:
                return self._chain(self.record(first - 1))
        return []

    def _chain(self, record: Record) -> list[Record]:
        chain = [record]
        while record.next_record:
            if not record.number + 1 < record.next_record <= self.record_count:
                raise RecordingChanged("the index of the recording is damaged: delete the index")
            record = self.record(record.next_record - 1)
            chain.append(record)
        return chain

    def discarded_lines(self) -> tuple[int, ...]:
        at = self._discarded_at
        return tuple(
            _NUMBER.unpack_from(self._buffer, at + 4 * number)[0]
            for number in range(self.discarded_count)
        )
