"""Stored bodies: Zstandard over a long window, each told by what it adds to one before it.

Each turn of an agent repeats the whole conversation, so a request is compressed with the one before
it in sight, and is a few hundred bytes. Pure: what is a record, and what is in it. Rules:
docs/formats/llm-http.md, section 1.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from bernstein_formats import zstandard
from bernstein_formats.errors import RowMalformed

# Tag, layout, bytes of the frame, bytes of the body, bytes back to the record it rests on, SHA-256.
_HEADER: Final = struct.Struct(">4sIQQQ32s")
HEADER_BYTES: Final = _HEADER.size
_TAG: Final = b"BODY"
_LAYOUT: Final = 1
# So that a log, which keeps whole lines after a crash, keeps a whole record.
_END: Final = b"\n"
# zstd takes no smaller prefix.
_BASE_BYTES_MIN: Final = 8
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
# So many records, and so many bytes, are read at most for one body.
CHAIN_LENGTH_MAX: Final = 64
CHAIN_BYTES_MAX: Final = 64 * 1024 * 1024
_LEVEL: Final = 3
_WINDOW_LOG_MIN: Final = 10
_WINDOW_LOG_MAX: Final = 27
_Parameter = zstandard.CompressionParameter


@dataclass(frozen=True, slots=True)
class Record:
    """The head of a stored body. `back`: where the body it rests on begins before it; 0: none."""

    frame_bytes: int
    size: int
    back: int
    sha256: bytes

    @property
    def length(self) -> int:
        """Bytes of the whole record."""
        return HEADER_BYTES + self.frame_bytes + len(_END)


def packed(body: bytes, base: bytes = b"", back: int = 0) -> bytes:
    """The record of a body, which rests on `base` where there is one."""
    window = (len(body) + len(base)).bit_length()
    options: dict[int, int] = {
        _Parameter.compression_level: _LEVEL,
        _Parameter.window_log: min(max(window, _WINDOW_LOG_MIN), _WINDOW_LOG_MAX),
        _Parameter.enable_long_distance_matching: 1,
    }
    frame = zstandard.compress(body, options=options, zstd_dict=_prefix(base))
    sha256 = hashlib.sha256(body).digest()
    return _HEADER.pack(_TAG, _LAYOUT, len(frame), len(body), back, sha256) + frame + _END


def parse_record(head: bytes, at: int, end: int) -> Record | None:
    """Read the head of the record that begins at `at`, in a file of `end` bytes.

    None: the file ends inside of it. Raises RowMalformed for what is no head.
    """
    if len(head) < HEADER_BYTES:
        return None
    tag, layout, frame_bytes, size, back, sha256 = _HEADER.unpack_from(head)
    if tag != _TAG or layout != _LAYOUT or size > BODY_BYTES_MAX or back > at:
        raise _malformed(at, "no record begins here")
    found = Record(frame_bytes, size, back, sha256)
    return found if at + found.length <= end else None


def unpacked(frame: bytes, record: Record, base: bytes = b"", at: int = 0) -> bytes:
    """The body of a record. Raises RowMalformed for a frame that holds something else."""
    decompressor = zstandard.ZstdDecompressor(zstd_dict=_prefix(base))
    try:
        body = decompressor.decompress(frame, record.size + 1)
    except zstandard.ZstdError as error:
        raise _malformed(at, str(error)) from error
    if len(body) != record.size or hashlib.sha256(body).digest() != record.sha256:
        raise _malformed(at, "the body does not have its digest")
    return body


def _prefix(base: bytes) -> "tuple[zstandard.ZstdDict, int] | None":
    return zstandard.ZstdDict(base, is_raw=True).as_prefix if len(base) >= _BASE_BYTES_MIN else None


def _malformed(at: int, what: str) -> RowMalformed:
    return RowMalformed(
        f"llm_http.bodies: byte {at}: {what}; the file was changed: restore it", offset=at
    )
