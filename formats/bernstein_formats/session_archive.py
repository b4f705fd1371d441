"""The tar archive of a session receipt: its bytes out, and a reader that takes nothing else.

Rules: docs/formats/session-journal.md, section 9. POSIX ustar as the peer's writer makes it:
regular members, mode 0600, nobody's, no compression. Nothing is ever unpacked.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, overload

from bernstein_formats.errors import LimitExceeded, ReceiptMalformed

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
JOURNAL: Final = "journal/000000.jsonl"

_BLOCK: Final = 512
_RECORD: Final = 20 * _BLOCK
_SIZE_MAX: Final = 8**11 - 1
_PIECE_BYTES: Final = 256 * 1024
_REGULAR: Final = b"0"
_MAGIC: Final = b"ustar\x0000"
_NAMES: Final = re.compile(
    r"manifest\.json|manifest\.sig|journal/[0-9]{6}\.jsonl|blobs/[0-9a-f]{64}"
)
_OCTAL: Final = re.compile(rb" *([0-7]+)[ \0]*")


class Readable(Protocol):
    """Bytes, or a mapped file."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, key: int, /) -> int: ...

    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Member:
    """A member's name, and where its bytes are."""

    name: str
    start: int
    size: int

    def pieces(self, archive: Readable) -> Iterator[bytes]:
        """The content in parts."""
        end = self.start + self.size
        for start in range(self.start, end, _PIECE_BYTES):
            yield archive[start : min(start + _PIECE_BYTES, end)]

    def content(self, archive: Readable) -> bytes:
        return archive[self.start : self.start + self.size]


def blob_name(digest: str) -> str:
    """Name the member that holds a blob."""
    return f"blobs/{digest}"


def header_bytes(name: str, size: int, mtime: int) -> bytes:
    """Write what stands before a member's content."""
    if size > _SIZE_MAX:
        raise LimitExceeded(f"{name} has more than 8 GiB, which is too much for a receipt")
    fields = (
        name.encode("ascii").ljust(100, b"\0"),
        b"0000600\x000000000\x000000000\0%011o\0%011o\0" % (size, mtime),
        b" " * 8,
        _REGULAR.ljust(101, b"\0"),
        _MAGIC.ljust(_BLOCK - 257, b"\0"),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size: int) -> bytes:
    """What follows a member's content, up to the next block."""
    return bytes(-size % _BLOCK)


def end_bytes(size: int) -> bytes:
    """What ends an archive of so many bytes."""
    return bytes(2 * _BLOCK + -(size + 2 * _BLOCK) % _RECORD)


def members(archive: Readable) -> list[Member]:
    """Find the members of a receipt. Raises ReceiptMalformed for whatever has no place in one."""
    found: list[Member] = []
    names: set[str] = set()
    start = 0
    while True:
        block = archive[start : start + _BLOCK]
        if len(block) < _BLOCK:
            raise _malformed(_what_it_is(archive) if not start else "the archive is cut short")
        if not any(block):
            _check_end(archive, start)
            return found
        member = _member(block, start + _BLOCK)
        _check_member(archive, member, names)
        found.append(member)
        names.add(member.name)
        start = member.start + member.size + len(padding(member.size))


def is_as_written(archive: Readable, found: Sequence[Member], digests: Sequence[str]) -> bool:
    """Whether order and headers are a writer's; `digests` are those that rows refer to, in order.

    Times apart: each writer has its own clock.
    """
    names = [member.name for member in found]
    wanted = [
        *(name for name in (MANIFEST, SIGNATURE) if name in names),
        *(member.name for member in journals(found)),
        *(name for name in map(blob_name, digests) if name in names),
    ]
    return names == wanted and all(_has_own_header(archive, member) for member in found)


def _has_own_header(archive: Readable, member: Member) -> bool:
    block = archive[member.start - _BLOCK : member.start]
    return block == header_bytes(member.name, member.size, _octal(block[136:148]))


def journals(found: Sequence[Member]) -> list[Member]:
    """The journal members, in the order in which they are one chain."""
    return sorted((each for each in found if each.name.startswith("journal/")), key=_name)


def _name(member: Member) -> str:
    return member.name


def _member(block: bytes, start: int) -> Member:
    if block[257:265] != _MAGIC or _octal(block[148:156]) != _checksum(block):
        raise _malformed(_what_it_is(block) if start == _BLOCK else "a member's header is damaged")
    name = block[:100].rstrip(b"\0").decode("ascii", "backslashreplace")
    if block[156:157] != _REGULAR or any(block[157:257]) or any(block[345:500]):
        raise _malformed(f"the member {name!r} is no regular file; links and the like are refused")
    return Member(name, start, _octal(block[124:136]))


def _check_member(archive: Readable, member: Member, names: set[str]) -> None:
    if not _NAMES.fullmatch(member.name):
        raise _malformed(f"the member {member.name!r} has no place in a receipt")
    if member.name in names:
        raise _malformed(f"the member {member.name!r} is there twice")
    end = member.start + member.size
    if end > len(archive):
        raise _malformed("the archive is cut short")
    if any(archive[end : end + len(padding(member.size))]):
        raise _malformed(f"bytes are hidden behind the member {member.name!r}")


def _check_end(archive: Readable, start: int) -> None:
    rest = archive[start:] if len(archive) - start <= 2 * _RECORD else b"\1"
    if len(rest) != len(end_bytes(start)) or any(rest):
        raise _malformed("bytes follow the end of the archive, or its end is cut short")


def _checksum(block: bytes) -> int:
    return sum(block[:148]) + sum(b" " * 8) + sum(block[156:])


def _octal(field: bytes) -> int:
    found = _OCTAL.fullmatch(field)
    if found is None:
        raise _malformed("a member's header is damaged")
    return int(found[1], 8)


def _what_it_is(archive: Readable) -> str:
    head = archive[:6]
    packed = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
    if head[:2] in packed:
        return f"it is compressed ({packed[head[:2]]}); receipts are plain tar archives"
    return "it is no tar archive"


def _malformed(what: str) -> ReceiptMalformed:
    return ReceiptMalformed(f"not a session receipt: {what}")
